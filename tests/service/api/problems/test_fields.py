"""Fields at fault: all at once, each with its place in the body and the name that was probably meant."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from pydantic import TypeAdapter

from service.api.problems import written_forms
from service.api.request_body import Spot, spot_of
from tests.support.service.impossible_jobs import WORKLOAD, only_error


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        (
            {"objective": {"metric": "validation_loss", "also": ["step_seconds"]}},
            "objective",
            "there is no such field: did you mean 'objectives'?",
        ),
        (
            {"objectives": [{"metric": "validation_loss", "also": ["step_seconds"]}]},
            "objectives[0].also",
            "there is no such field (known: metric)",
        ),
        ({"num_trials": 24}, "num_trials", "there is no such field: did you mean 'budget.num_trials'?"),
        (
            {"training": {"batchsize": 64}},
            "training.batchsize",
            "there is no such field: did you mean 'batch_size'?",
        ),
        (
            {"baselines": [{"budget_shares": 0.5}]},
            "baselines[0].budget_shares",
            "there is no such field: did you mean 'budget_share'?",
        ),
        (
            {"baseline": {"budget_shares": 0.5}},
            "baseline.budget_shares",
            "there is no such field: did you mean 'budget_share'?",
        ),
        (
            {"confirmation": {"top_k": 2, "num_seed": 3}},  # where "auto" may stand, too
            "confirmation.num_seed",
            "there is no such field: did you mean 'num_seeds'?",
        ),
        (
            {"training": {"num_epochs": 3}},
            "training.num_epochs",
            "there is no such field: 'num_steps', 'num_examples' or 'num_tokens' says how long a trial trains; "
            "an epoch is as many examples as you have",
        ),
        (
            {"training": {"target": {"metric": "validation_loss", "value": 0.2}}},
            "training.target",
            "there is no such field: did you mean 'target' beside 'training'?",
        ),
        (
            {"training": {"schedule": {"decay": "wsd"}}},
            "training.schedule",
            "there is no such field: the job's search space has its fields, as 'schedule.warmup_fraction'",
        ),
        (
            {"optimizer": "adamw"},
            "optimizer",
            "there is no such field: 'search_space' of the job says it",
        ),
        (
            {"training": {"workload_options": {"width": 64}}},
            "training.workload_options",
            "there is no such field: 'workload.options' of the job has them",
        ),
    ],
)
def test_an_unknown_field_is_answered_with_the_nearest_name_or_all_there_are(
    sqlite_http: httpx.Client, fields: dict[str, Any], field: str, message: str
) -> None:
    assert only_error(sqlite_http, fields) == (field, message)


def test_the_fields_that_there_are_stand_with_the_first_of_an_object_that_is_none(sqlite_http: httpx.Client) -> None:
    sweep = {"budgets": {}, "program": "train.py", "method": "bayes"}
    answer = sqlite_http.post("/v1/jobs", json={**WORKLOAD, **sweep})
    found = {error["field"]: error["message"] for error in answer.json()["errors"]}
    assert found["budgets"] == "there is no such field: did you mean 'budget'?"
    assert found["program"].startswith("there is no such field (known: workload, search_space, ")
    assert found["method"] == "there is no such field"


@pytest.mark.parametrize(
    ("fields", "field", "meant"),
    [
        ({"workload": {"name": "digit-mlp"}}, "workload.name", "digits-mlp"),
        (
            {"workload": {"name": "digits-mlp", "options": {"label_smothing": 0.1}}},
            "workload.options.label_smothing",
            "label_smoothing",
        ),
        ({"search_space": "shampo"}, "search_space", "shampoo"),
        ({"baseline": {"search_space": "AdamW"}}, "baseline.search_space", "adamw"),
        ({"baselines": [{"search_space": "AdamW"}]}, "baselines[0].search_space", "adamw"),
        ({"search_space": {"optimizer": "adamw", "parameters": [], "fixd": {}}}, "search_space.fixd", "fixed"),
        (
            {"search_space": {"optimizer": "adamw", "fixed": {"weight_dekay": 0.1}}},
            "search_space.fixed",
            "weight_decay",
        ),
        ({"objectives": [{"metric": "validaton_loss"}]}, "objectives[0].metric", "validation_loss"),
        ({"target": {"metric": "accuracy", "value": 0.9}}, "target.metric", "validation_accuracy"),
        ({"constraints": [{"metric": "peak_memory", "max": 1.0}]}, "constraints[0].metric", "peak_memory_bytes"),
        ({"sampler": {"name": "ramdom"}}, "sampler.name", "random"),
        ({"pruner": {"name": "hyper-band"}}, "pruner.name", "hyperband"),
        ({"training": {"precision": "bfloat-16"}}, "training.precision", "bfloat16"),
    ],
)
def test_an_unknown_name_is_answered_with_the_one_that_was_probably_meant(
    sqlite_http: httpx.Client, fields: dict[str, Any], field: str, meant: str
) -> None:
    answer = sqlite_http.post("/v1/jobs", json={**WORKLOAD, **fields})
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["field"] == field
    assert error["message"].endswith(f": did you mean '{meant}'?")


def test_all_faulty_fields_are_told_at_once_each_with_a_pointer(sqlite_http: httpx.Client) -> None:
    by_kind = {
        "workload": {"name": "digits-mlp"},
        "training": {"batch_size": "big", "seeds": 1},
        "budget": {"num_trials": 0},
        "baselines": [{"search_space": 3}],
    }
    by_meaning = {
        "workload": {"name": "digits-mlp", "options": {"hiden_sizes": [3]}},
        "search_space": "shampo",
        "objectives": [{"metric": "validation_los"}],
        "constraints": [{"metric": "x"}, {"metric": "validation_loss"}],
        "resources": {"custom_resources": {"TPU": 0.00001, "-": 1}},
        "training": {"parallelism": {"mode": "fsdp2"}},
        "baselines": [{"search_space": "adam"}, {"search_space": "muon"}],
    }
    inside = {"workload": {"name": "digits-mlp"}, "pinned": [{"lr": 1e9}, {"betas[0]": 2.0}, {"learning": 1}]}
    space = {
        "optimizer": "shampoo",
        "parameters": [
            {"type": "float", "name": "lr", "low": "small", "high": 0.1},
            {"type": "float", "name": "weight_decay", "low": 0.5, "high": 0.1, "scale": "log"},
            {"type": "integer", "name": "nothing", "low": 1, "high": 2},
        ],
        "fixed": {"betas": [0.9]},
    }
    cases: list[tuple[dict[str, Any], list[str]]] = [
        (
            {"workload": {"name": "digits-mlp"}, "search_space": space, "objectives": [{"metric": "validation_los"}]},
            [
                "/objectives/0/metric",
                "/search_space/fixed/betas",
                "/search_space/parameters/0/low",
                "/search_space/parameters/1/low",
                "/search_space/parameters/2/name",
            ],
        ),
        (by_kind, ["/training/batch_size", "/training/seeds", "/budget/num_trials", "/baselines/0/search_space"]),
        (
            by_meaning,
            [
                "/workload/options/hiden_sizes",
                "/objectives/0/metric",
                "/constraints/0/metric",
                "/constraints/1",
                "/resources/custom_resources/TPU",
                "/resources/custom_resources/-",
                "/training/parallelism/mode",
                "/search_space",
                "/baselines/0/search_space",
            ],
        ),
        (inside, ["/pinned/0/lr", "/pinned/1/betas[0]", "/pinned/2"]),
        ({"name": "a\0", "tags": {"b\0": "c\0"}}, ["/name", "/tags/b\0", "/tags/b\0"]),
    ]
    for body, pointers in cases:
        answer = sqlite_http.post("/v1/jobs", json=body)
        assert answer.status_code == 422
        errors = answer.json()["errors"]
        assert sorted(error["pointer"] for error in errors) == sorted(pointers), answer.text
    told = {error["pointer"]: error for error in sqlite_http.post("/v1/jobs", json=by_meaning).json()["errors"]}
    assert told["/search_space"]["value"] == "shampo"
    for pointer in ("/search_space", "/workload/options/hiden_sizes", "/objectives/0/metric"):
        assert "did you mean" in told[pointer]["message"], told[pointer]
    query = sqlite_http.get("/v1/jobs", params={"page_size": 0}).json()["errors"]
    assert [(error["field"], "pointer" in error) for error in query] == [("page_size", False)]


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        (
            {
                "workload": {"name": "digit-mlp", "option": {}},
                "search_space": "shampo",
                "baseline": {"search_space": "AdamW", "budget_shares": 0.5},
                "trainin": {"num_steps": 10},
            },
            {
                "/workload/option": "options",
                "/baseline/budget_shares": "budget_share",
                "/trainin": "training",
                "/workload/name": "digits-mlp",
                "/search_space": "shampoo",
                "/baseline/search_space": "adamw",
            },
        ),
        (
            {**WORKLOAD, "objectives": [{"metric": "validaton_loss"}], "budget": {"num_trial": 3}},
            {"/budget/num_trial": "num_trials", "/objectives/0/metric": "validation_loss"},
        ),
        (
            {"workload": {"name": "digits-mlp", "options": {"hiden_sizes": [8], "droput": 0.1, "label_smoothin": 0.1}}},
            {
                "/workload/options/hiden_sizes": "hidden_sizes",
                "/workload/options/droput": "dropout",
                "/workload/options/label_smoothin": "label_smoothing",
            },
        ),
        (
            {
                **WORKLOAD,
                "search_space": {
                    "optimizer": "shampoo",
                    "fixed": {"workload.droput": 0.1, "workload.label_smoothin": 0.1},
                },
            },
            {
                "/search_space/fixed/workload.droput": "dropout",
                "/search_space/fixed/workload.label_smoothin": "label_smoothing",
            },
        ),
        (
            {"wrkload": {"name": "digits-mlp"}, "search_space": "shampo"},
            {"/wrkload": "workload", "/search_space": "shampoo"},
        ),
        # What may be wrong only because a faulty field cannot be read is not told.
        (
            {
                **WORKLOAD,
                "objectives": [{"metric": "steps_to_target"}],
                "targe": {"metric": "validation_accuracy", "value": 0.9},
                "constraints": [{"metric": "peak_memory_bytes", "maxx": 1.0}],
            },
            {"/targe": "target", "/constraints/0/maxx": "max"},
        ),
        (
            {
                "workload": {"name": "image-folder", "option": {"path": "x"}},
                "baselines": [3, {"search_space": "AdamW"}],
            },
            {"/workload/option": "options"},
        ),
        ({"workload": {"name": "my_model:Mine"}, "budget": {"num_trial": 3}}, {"/budget/num_trial": "num_trials"}),
    ],
)
def test_a_misspelt_field_hides_no_misspelt_name(
    sqlite_http: httpx.Client, body: dict[str, Any], pointers: dict[str, str]
) -> None:
    answer = sqlite_http.post("/v1/jobs", json=body)
    assert answer.status_code == 422
    told = {error["pointer"]: error["message"] for error in answer.json()["errors"]}
    meant = {pointer: message for pointer, message in told.items() if "did you mean" in message}
    assert {pointer: message.rpartition("'")[0].rpartition("'")[2] for pointer, message in meant.items()} == pointers
    assert told.keys() - meant.keys() <= {"/workload", "/baselines/0"}, told


@pytest.mark.parametrize(
    ("training", "pointers"),
    [
        ({"parallelism": {"mode": "hsdp"}}, ["/training/parallelism/shard_size"]),
        (
            {"parallelism": {"mode": "ddp", "shard_size": 2}, "batch_size": "big"},
            ["/training/batch_size", "/training/parallelism/shard_size"],
        ),
        ({"evaluate_every": 5, "evaluate_every_epochs": 1.0}, ["/training/evaluate_every"]),
        (
            {"num_steps": 5, "num_tokens": 9, "evaluate_evry": 5, "parallelism": {"mode": "fsdp2"}, "compression": {}},
            ["/training/compression", "/training/evaluate_evry", "/training/num_tokens"],
        ),
        ({"parallelism": {"mode": "hsdp", "shard_sise": 2}}, ["/training/parallelism/shard_sise"]),
    ],
)
def test_settings_that_do_not_go_with_each_other_hide_no_other_fault(
    sqlite_http: httpx.Client, training: dict[str, Any], pointers: list[str]
) -> None:
    body = {**WORKLOAD, "training": training, "search_space": "shampo", "budget": {"num_trial": 3}}
    errors = {error["pointer"]: error for error in sqlite_http.post("/v1/jobs", json=body).json()["errors"]}
    assert sorted(errors) == sorted([*pointers, "/search_space", "/budget/num_trial"])
    told = errors.get("/training/parallelism/shard_size", {})
    assert told.get("value") == training.get("parallelism", {}).get("shard_size")


@pytest.mark.parametrize(
    ("fields", "expected", "end"),
    [
        ({"workload": "digits-mlp"}, ["object"], """, got 'digits-mlp': write {"name": "digits-mlp"}"""),
        ({"budget": {"num_trials": "8"}}, ["integer"], ", got '8': write 8"),
        ({"tags": {"a": True}}, ["string"], ", got true"),
        ({"tag": {}}, None, ": did you mean 'tags'?"),
        ({"budget": {"num_trials": -8}}, None, ", got -8"),
        ({"sampler": {"name": "bayes"}}, None, ": did you mean 'cmaes'?"),
        ({"pinned": [{}] * 101}, None, "must have at most 100 items, got 101"),
        ({"tags": {str(number): "" for number in range(51)}}, None, "must have at most 50 items, got 51"),
        ({"sampler": {"name": 7}}, None, ", got 7"),  # of another kind, and none of the words
    ],
)
def test_the_kind_of_value_that_is_wanted_and_what_was_given_are_told(
    sqlite_http: httpx.Client, fields: dict[str, Any], expected: list[str] | None, end: str
) -> None:
    (error,) = sqlite_http.post("/v1/jobs", json={**WORKLOAD, **fields}).json()["errors"]
    assert error.get("expected") == expected
    assert error["message"].endswith(end), error


@pytest.mark.parametrize(
    ("body", "field", "pointer", "value"),
    [
        ({"a": {"b/c": [1, {"~": 2}]}}, "a.b/c[1].~", "/a/b~1c/1/~0", 2),
        ({"p": [{"betas[0]": 3, "schedule.warmup": 4}]}, "p[0].betas[0]", "/p/0/betas[0]", 3),
        ({"p": [{"betas[0]": 3, "schedule.warmup": 4}]}, "p[0].schedule.warmup", "/p/0/schedule.warmup", 4),
        ({"a": {"odd 'name": 5}}, "a.odd 'name", "/a/odd 'name", 5),
        ({"a": {}}, "a['b c'][0]", "/a/b c/0", None),
        ({"a": {"\ud800": {"b": 1}}}, r"a['\ud800'].b", r"/a/\ud800/b", 1),
        ({}, "training.batch_size", "/training/batch_size", None),
        ([1], "body", "", None),
        ({"x": 1}, "", "", {"x": 1}),
    ],
)
def test_a_path_leads_to_a_place_in_the_body(body: object, field: str, pointer: str, value: Any) -> None:
    assert spot_of(body, field) == Spot(pointer, value)


class _LargeObject(dict[str, Any]):
    """An object of so many names that nobody may go through them for each of many faults."""

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("went through all names of a large object")


@pytest.mark.parametrize("name", ["width", "schedule.warmup", "betas[0]", "no such name", "a" * 3000])
def test_the_place_of_a_path_is_looked_up_without_going_through_all_names(name: str) -> None:
    options = _LargeObject({"width": 1, "schedule.warmup": 2, "betas[0]": 3, "schedule": 4, "betas": 5, "a" * 3000: 6})
    expected = dict.get(options, name)
    assert spot_of({"options": options}, f"options.{name}") == Spot(f"/options/{name}", expected)


def test_what_tells_whether_values_fit_is_made_once_for_each_kind(
    sqlite_http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = list[object]()

    def counted(kind: Any) -> TypeAdapter[Any]:
        made.append(kind)
        return TypeAdapter(kind)

    monkeypatch.setattr(written_forms, "TypeAdapter", counted)
    body = {**WORKLOAD, "training": {f"field{index}": 1 for index in range(300)}}
    assert sqlite_http.post("/v1/jobs", json=body).status_code == 422
    assert len(made) == len(set(made))
