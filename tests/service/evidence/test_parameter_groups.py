"""A config that was found with parameter groups says so wherever it is shown, as long as the Python lacks them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from service.cli.commands import app
from service.domain import Phase
from service.evidence.parameter_groups import OwnSettings, own_settings
from service.store.repositories import JobRepository, RecommendationRepository
from service.store.session import Database
from service.use_cases.run import finish_job
from tests.support.service.live import running
from tests.support.service.scenarios import NOW, claimed_job, run_trial
from trainers.workload.description import ParameterGroup
from trainers.workloads.registry import BUILT_IN

TABLES = "embeddings of tokens and positions, and the output layer"
VECTORS = "biases and weights of norms"
GROUPS = (
    ParameterGroup("tables", {"preconditioner": "none"}, unless="precondition_embeddings"),
    ParameterGroup("vectors", {"weight_decay": 0.0}),
)


@pytest.fixture
def url(sqlite_database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with running(sqlite_database) as url:
        monkeypatch.setenv("SHAMPOO_TUNER_URL", url)
        yield url


def finished(database: Database, name: str, options: Mapping[str, Any]) -> str:
    """The id of a job of this workload that succeeded."""
    lease = claimed_job(database, workload={"name": name, "options": options})
    run_trial(database, lease, 0, 0.4)
    run_trial(database, lease, 1, 0.5, Phase.BASELINE)
    with database.writing() as session:
        finish_job(session, lease, failure=None, now=NOW)
    return lease.job_id


def said(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments)
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
    found = own_settings(GROUPS, optimizer=optimizer, arguments=arguments, options=options)
    assert found == [OwnSettings(*one) for one in expected]


def test_every_answer_says_what_the_python_lacks(url: str, sqlite_database: Database) -> None:
    job_id = finished(sqlite_database, "text-lm", {"path": "/data/text"})
    sentence = "The trials gave some parameters settings of their own, which the config and the Python lack: "
    content = json.loads(said("recommend", "--job", job_id, "--format", "json"))
    assert content["parameter_groups"][0] == {"parameters": TABLES, "settings": {"preconditioner": "none"}}
    assert content["evidence"]["caveats"][0].startswith(f"{sentence}{TABLES}: preconditioner='none'")
    assert f"{sentence}{TABLES}" in said("watch", job_id)
    assert sentence in httpx.get(f"{url}/jobs/{job_id}").text
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
    assert content["parameter_groups"] == [{"parameters": VECTORS, "settings": {"weight_decay": 0.0}}]


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
    assert f"# - {VECTORS}: weight_decay=0.0" in said("recommend", "--job", job_id, "--trial", "1")


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
