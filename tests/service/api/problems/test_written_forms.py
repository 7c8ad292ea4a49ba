"""Values in the place of objects and lists: the answer says how they are written."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from pydantic import TypeAdapter

from service.api.problems.written_forms import EXAMPLES
from tests.support.service.impossible_jobs import WORKLOAD, only_error


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        (
            {"workload": "digits-mlp"},
            "workload",
            """must be an object, got 'digits-mlp': write {"name": "digits-mlp"}""",
        ),
        ({"workload": ["digits-mlp"]}, "workload", """must be an object: write {"name": "digits-mlp"}"""),
        ({"workload": None}, "workload", """must be an object, got null, such as {"name": "digits-mlp"}"""),
        (
            {"baselines": ["adamw"]},
            "baselines[0]",
            """must be an object, got 'adamw': write {"search_space": "adamw"}""",
        ),
        ({"baseline": "muon"}, "baseline", """must be an object, got 'muon': write {"search_space": "muon"}"""),
        (
            {"baselines": "adamw"},
            "baselines",
            """must be a valid list, got 'adamw': write [{"search_space": "adamw"}]""",
        ),
        (
            {"baselines": {"search_space": "muon"}},
            "baselines",
            """must be a valid list: write [{"search_space": "muon"}]""",
        ),
        ({"baselines": {"muon": {}}}, "baselines", """must be a valid list, such as [{"search_space": "adamw"}]"""),
        (
            {"baselines": [{"name": "muon"}]},
            "baselines[0].name",
            "there is no such field: did you mean 'search_space'?",
        ),
        (
            {"objective": "loss"},
            "objective",
            """there is no such field: did you mean 'objectives'? It holds [{"metric": "loss"}]""",
        ),
        (
            {"objectives": ["validation_loss"]},
            "objectives[0]",
            """must be an object, got 'validation_loss': write {"metric": "validation_loss"}""",
        ),
        (
            {"objectives": [{"metric": "validation_loss", "direction": "minimize"}]},
            "objectives[0].direction",
            "there is no such field: the metric has its direction",
        ),
        ({"search_space": ["soap"]}, "search_space", """must be a valid string, or must be an object: write "soap\""""),
        ({"budget": 12}, "budget", """must be an object, got 12: write {"num_trials": 12}"""),
        ({"budget": "much"}, "budget", """must be an object, got 'much', such as {"num_trials": 20}"""),
        (
            {"budget": {"wall_clock_seconds": "1h"}},
            "budget.wall_clock_seconds",
            "must be a valid number, got '1h', such as 3600",
        ),
        ({"budget": {"num_trials": "8"}}, "budget.num_trials", "must be a valid integer, got '8': write 8"),
        ({"training": {"num_steps": 1e3}}, "training.num_steps", "must be a valid integer, got 1000.0: write 1000"),
        (
            {"training": {"parallelism": "fsdp2"}},
            "training.parallelism",
            """must be an object, got 'fsdp2': write {"mode": "fsdp2"}""",
        ),
        (
            {"resources": {"memory_per_worker": "8GB"}},
            "resources.memory_per_worker",
            "must be a valid integer, got '8GB', such as 8000000000",
        ),
        (
            {"constraints": ["peak_memory_bytes < 8e9"]},
            "constraints[0]",
            "must be an object, got 'peak_memory_bytes < 8e9', such as "
            """{"metric": "peak_memory_bytes", "max": 8000000000.0}""",
        ),
        ({"target": {"value": 0.1}}, "target.metric", """is required, such as "validation_loss\""""),
        ({"sampler": "tpe"}, "sampler", """must be an object, got 'tpe': write {"name": "tpe"}"""),
        ({"sampler": "bayes"}, "sampler", """must be an object, got 'bayes', such as {"name": "tpe"}"""),
        ({"pinned": "algoperf"}, "pinned", """must be a valid list, got 'algoperf': write ["algoperf"]"""),
        ({"trackers": "mlflow"}, "trackers", """must be a valid list, got 'mlflow': write ["mlflow"]"""),
        (
            {"confirmation": 5},
            "confirmation",
            """must be an object, or must be 'auto', got 5: write {"num_seeds": 5}""",
        ),
        ({"tags": ["team"]}, "tags", """must be an object, such as {"team": "vision"}"""),
        (
            {"workload": {"name": "digits-mlp", "options": ["width", "depth"]}},
            "workload.options",
            """must be an object, such as {"width": 64, "depth": 2}""",
        ),
        (
            {"workload": {"name": "digits-mlp", "options": [{"width": 8}, {"depth": 3}]}},
            "workload.options",
            """must be an object: write {"width": 8, "depth": 3}""",
        ),
        ({"keep_weights": "no"}, "keep_weights", "must be a valid boolean, got 'no': write false"),
        (
            {"code": "."},
            "code",
            "must be an object, got '.': `shampoo-tuner submit --code DIR` sends a directory and names it",
        ),
        (
            {"imported": "trials.json"},
            "imported",
            "must be a valid list, got 'trials.json': `shampoo-tuner import` writes them",
        ),
    ],
)
def test_what_stands_in_the_place_of_another_kind_is_answered_with_how_it_is_written(
    sqlite_http: httpx.Client, fields: dict[str, Any], field: str, message: str
) -> None:
    assert only_error(sqlite_http, fields) == (field, message)


@pytest.mark.parametrize(
    ("parameters", "field", "told"),
    [
        ({"lr": {"low": 1e-4, "high": 0.1}}, "parameters", 'must be a list, such as [{"type": "float", '),
        (["lr"], "parameters[0]", 'must be an object, such as {"type": "float", "name": "lr", '),
        ([{"name": "lr", "low": 1e-4, "high": 0.1}], "parameters[0].type", "is required: one of float, integer, "),
        (
            [{"type": "float", "name": "lr", "low": 1e-4, "high": 0.1, "log": True}],
            "parameters[0].log",
            'did you mean "scale": "log"?',
        ),
        (
            [{"type": "categorical", "name": "nesterov", "choices": [True], "values": [True]}],
            "parameters[0].values",
            "did you mean 'choices'?",
        ),
    ],
)
def test_parameters_of_another_form_are_answered_with_theirs(
    sqlite_http: httpx.Client, parameters: object, field: str, told: str
) -> None:
    space = {"optimizer": "shampoo", "parameters": parameters}
    answer = sqlite_http.post("/v1/jobs", json={**WORKLOAD, "search_space": space})
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["field"] == f"search_space.{field}"
    assert told in error["message"]


def test_a_space_without_its_optimizer_names_each_field_that_it_does_not_have(sqlite_http: httpx.Client) -> None:
    answer = sqlite_http.post("/v1/jobs", json={**WORKLOAD, "search_space": {"lr": [1e-4, 0.1]}})
    fields = {error["field"]: error["pointer"] for error in answer.json()["errors"]}
    assert fields == {"search_space.lr": "/search_space/lr", "search_space.optimizer": "/search_space/optimizer"}


@pytest.mark.parametrize("kind", EXAMPLES)
def test_an_example_is_such_an_object(kind: type) -> None:
    assert TypeAdapter[Any](kind).validate_json(json.dumps(EXAMPLES[kind]))
