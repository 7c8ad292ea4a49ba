"""A config that was found with parameter groups has them where it is pasted, or says where it is shown that it lacks
them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from torch import nn

from service.domain import Phase
from service.evidence.parameter_groups import OwnSettings, own_settings, python_of_groups
from service.store.repositories import JobRepository, RecommendationRepository
from service.store.session import Database
from service.use_cases.run import finish_job
from tests.support.service.caveats import sentences_of
from tests.support.service.commands import run
from tests.support.service.live import running
from tests.support.service.scenarios import NOW, claimed_job, run_trial
from trainers.workload.description import ParameterGroup, ParameterRule
from trainers.workload.parameter_groups import groups_by_rule
from trainers.workloads.registry import BUILT_IN

TABLES = "embeddings of tokens and positions, and the output layer"
VECTORS = "biases and weights of norms"
WITHOUT_RULES = (
    ParameterGroup("tables", {"preconditioner": "none"}, unless="precondition_embeddings"),
    ParameterGroup("vectors", {"weight_decay": 0.0}),
)
RULES = {
    "tables": ParameterRule(module_types=("Embedding", "EmbeddingBag"), min_dims=2),
    "vectors": ParameterRule(max_dims=1),
}
GROUPS = tuple(replace(group, any_of=(RULES[group.parameters],)) for group in WITHOUT_RULES)


@pytest.fixture
def url(sqlite_database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with running(sqlite_database) as url:
        monkeypatch.setenv("SHAMPOO_TUNER_URL", url)
        yield url


def finished(database: Database, name: str, options: Mapping[str, Any], *, are_rules_known: bool = True) -> str:
    """The id of a job of this workload that succeeded."""
    lease = claimed_job(database, workload={"name": name, "options": options})
    if not are_rules_known:
        with database.writing() as session:
            job = JobRepository(session).get(lease.job_id)
            job.parameter_groups = [
                {name: value for name, value in group.items() if name != "any_of"}
                for group in job.parameter_groups or []
            ]
    run_trial(database, lease, 0, 0.4)
    run_trial(database, lease, 1, 0.5, Phase.BASELINE)
    with database.writing() as session:
        finish_job(session, lease, failure=None, now=NOW)
    return lease.job_id


def said(*arguments: str) -> str:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize(
    ("optimizer", "arguments", "options", "expected"),
    [
        (
            "shampoo",
            {"weight_decay": 0.1},
            {},
            [("tables", {"preconditioner": "none"}), ("vectors", {"weight_decay": 0})],
        ),
        ("shampoo", {}, {}, [("tables", {"preconditioner": "none"})]),
        ("shampoo", {"weight_decay": 0.1}, {"precondition_embeddings": True}, [("vectors", {"weight_decay": 0})]),
        ("shampoo", {"preconditioner": "none"}, {}, []),
        ("adamw", {}, {}, [("vectors", {"weight_decay": 0})]),
        ("sgd", {}, {}, []),
    ],
)
def test_a_setting_is_told_where_it_makes_a_difference(
    optimizer: str, arguments: dict[str, Any], options: dict[str, Any], expected: list[tuple[str, dict[str, Any]]]
) -> None:
    found = own_settings(WITHOUT_RULES, optimizer=optimizer, arguments=arguments, options=options)
    assert found == [OwnSettings(*one) for one in expected]


@pytest.mark.parametrize(
    ("optimizer", "arguments", "options", "expected"),
    [
        ("shampoo", {}, {}, [{"preconditioner": "none"}, {"weight_decay": 0.0}]),
        ("shampoo", {"preconditioner": "none"}, {"precondition_embeddings": True}, [{}, {"weight_decay": 0.0}]),
        ("adamw", {}, {}, [{}, {"weight_decay": 0.0}]),
        ("sgd", {}, {}, []),
        ("lora-rite", {"weight_decay": 0.1}, {}, []),  # the groups of its own function, in any case
    ],
)
def test_groups_that_rules_make_are_told_all_or_none(
    optimizer: str, arguments: dict[str, Any], options: dict[str, Any], expected: list[dict[str, Any]]
) -> None:
    found = own_settings(GROUPS, optimizer=optimizer, arguments=arguments, options=options)
    assert [one.settings for one in found] == expected
    assert [one.any_of for one in found] == [list(group.any_of) for group in GROUPS][: len(expected)]


@pytest.mark.parametrize(
    "rules",
    [
        [ParameterRule(name_parts=("0",))],
        [ParameterRule(name_parts=("0", "out"), max_dims=1), ParameterRule(min_dims=3)],
        [ParameterRule(module_types=("Embedding", "LayerNorm"))],
        [ParameterRule(module_types=("Linear",), name_parts=("2",), min_dims=2)],
        [ParameterRule(of_output_embeddings=True), ParameterRule(module_types=("LayerNorm",), max_dims=1)],
    ],
)
def test_the_python_makes_the_groups_of_the_trial(rules: list[ParameterRule]) -> None:
    """One declaration, read by the trial and by the code that is pasted."""

    class Model(nn.Sequential):
        def get_output_embeddings(self) -> nn.Module:
            return self[-1]

    model = Model(nn.Embedding(5, 4), nn.LayerNorm(4), nn.Linear(4, 4), nn.Conv1d(4, 4, 1), nn.Linear(4, 5))
    model[0].weight.requires_grad_(False)
    groups = [
        ParameterGroup("first\nof all", {"lr": 0.5, "betas": [0.5, 0.9]}, any_of=tuple(rules)),
        ParameterGroup("second", {"weight_decay": 0.0}, any_of=(ParameterRule(max_dims=1),)),
    ]
    own = [OwnSettings(group.parameters, dict(group.settings or {}), list(group.any_of)) for group in groups]
    pasted: dict[str, Any] = {"torch": torch}
    exec("\n".join(python_of_groups(own)), pasted)
    expected = [group for group in groups_by_rule(model, groups, options={}) if group["params"]]
    found = pasted["parameter_groups"](model)
    assert [list(map(id, group.pop("params"))) for group in found] == [
        list(map(id, group.pop("params"))) for group in expected
    ]
    assert [{**group, "betas": list(group.get("betas", ()))} for group in found] == [
        {**group, "betas": list(group.get("betas", ()))} for group in expected
    ]


def test_a_rule_comes_back_from_json_and_holds_something() -> None:
    for group in (*GROUPS, *WITHOUT_RULES):
        assert ParameterGroup.from_json(json.loads(json.dumps(asdict(group)))) == group
    for impossible in ({}, {"module_types": ("Embedding)",)}, {"max_dims": "1"}):
        with pytest.raises(ValueError, match="rule on parameters"):
            ParameterRule(**impossible)


def test_the_groups_are_pasted_and_told_as_data(url: str, sqlite_database: Database) -> None:
    job_id = finished(sqlite_database, "text-lm", {"path": "/data/text"})
    content = json.loads(said("recommend", "--job", job_id, "--format", "json"))
    assert content["parameter_groups"][1] == {
        "parameters": VECTORS,
        "settings": {"weight_decay": 0.0},
        "any_of": [
            {"name_parts": [], "module_types": [], "of_output_embeddings": False, "min_dims": None, "max_dims": 1}
        ],
    }
    assert not any("settings of their own" in caveat for caveat in sentences_of(content["evidence"]["caveats"]))
    for number in ("0", "1"):
        python = said("recommend", "--job", job_id, "--trial", number)
        assert "    parameter_groups(model),\n" in python
        assert "NOT AS MEASURED" not in python
    assert "settings of their own" not in said("watch", job_id)
    assert "settings of their own" not in httpx.get(f"{url}/jobs/{job_id}", verify=False).text


def test_every_answer_says_what_the_python_lacks(url: str, sqlite_database: Database) -> None:
    """Jobs that are older than the rules have settings alone."""
    job_id = finished(sqlite_database, "text-lm", {"path": "/data/text"}, are_rules_known=False)
    sentence = "The trials gave some parameters settings of their own, which the config and the Python lack: "
    content = json.loads(said("recommend", "--job", job_id, "--format", "json"))
    assert content["parameter_groups"][0] == {
        "parameters": TABLES,
        "settings": {"preconditioner": "none"},
        "any_of": [],
    }
    assert sentences_of(content["evidence"]["caveats"])[0].startswith(f"{sentence}{TABLES}: preconditioner='none'")
    assert f"{sentence}{TABLES}" in said("watch", job_id)
    assert sentence in httpx.get(f"{url}/jobs/{job_id}", verify=False).text
    python = said("recommend", "--job", job_id)
    compile(python, "snippet", "exec")
    before, _ = python.split("optimizer = Shampoo(")
    comment = " ".join(before[before.index("# NOT AS MEASURED") :].replace("#", "").split())
    assert f"- {TABLES}: preconditioner='none' " in comment
    assert comment.endswith("Pass parameter groups with these settings in place of model.parameters().")
    baseline = said("recommend", "--job", job_id, "--trial", "1")
    assert f"# - {VECTORS}: weight_decay=0.0" in baseline
    assert TABLES not in baseline
    content = json.loads(said("recommend", "--job", job_id, "--trial", "1", "--format", "json"))
    assert content["parameter_groups"] == [{"parameters": VECTORS, "settings": {"weight_decay": 0.0}, "any_of": []}]


@pytest.mark.usefixtures("url")
def test_older_jobs_and_recommendations_are_read(sqlite_database: Database) -> None:
    job_id = finished(sqlite_database, "text-lm", {"path": "/data/text"})
    with sqlite_database.writing() as session:
        JobRepository(session).get(job_id).parameter_groups = None
        stored = RecommendationRepository(session).of_job(job_id)
        assert stored is not None
        stored.content = {name: value for name, value in stored.content.items() if name != "parameter_groups"}
    assert json.loads(said("recommend", "--job", job_id, "--format", "json"))["parameter_groups"] == []
    assert "NOT AS MEASURED" not in said("recommend", "--job", job_id)
    assert "    parameter_groups(model),\n" in said("recommend", "--job", job_id, "--trial", "1")


@pytest.mark.processes
@pytest.mark.usefixtures("url")
def test_groups_of_a_users_class_are_told_by_its_name(
    sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(
        "class Grouped:\n"
        "    title, metrics, default_objective = 'Mine', {'validation_loss': 'minimize'}, 'validation_loss'\n"
        "    default_num_steps, default_evaluate_every, default_batch_size = 40, 10, 8\n"
        "    def parameter_groups(self, model): ...\n"
        "class Plain(Grouped):\n"
        "    parameter_groups = None\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    python = said("recommend", "--job", finished(sqlite_database, "mine:Grouped", {}))
    assert "# - as mine:Grouped.parameter_groups says\n" in python
    assert "NOT AS MEASURED" not in said("recommend", "--job", finished(sqlite_database, "mine:Plain", {}))


def test_workloads_that_train_all_parameters_alike_have_no_caveat() -> None:
    assert {name for name, description in BUILT_IN.items() if description.parameter_groups} == {
        "text-lm",
        "huggingface",
        "click-log",
        "image-folder",
    }
