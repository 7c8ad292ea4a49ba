"""Trials of other studies: what becomes of them in a job's file, what its sampler learns, and what counts."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import httpx
import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from typer.testing import CliRunner

from search_spaces import SearchSpace
from service.cli.commands import app
from service.domain import Phase
from service.errors import InvalidInput
from service.evidence.types import EvidenceStatus
from service.scheduler.policy.planned_policy import make_policy
from service.scheduler.policy.protocol import Start
from service.specification.job import JobSpecification
from service.specification.planning import plan_job
from service.store.repositories import RecommendationRepository, TrialRepository
from service.store.session import Database
from tests.service.imports.importing import JOB, SPACE, imported
from tests.support.service.live import finished_job, running


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "journal"])
def test_a_study_of_optuna_is_imported(tmp_path: Path, kind: str) -> None:
    if kind == "sqlite":
        source = f"sqlite:///{tmp_path}/study.db"
        storage: Any = source
    else:
        source = str(tmp_path / "study.log")
        storage = JournalStorage(JournalFileBackend(source))
    study = optuna.create_study(storage=storage, study_name="mine")
    for lr, decay in ((0.1, 0.1), (0.01, 0.0), (5.0, 0.1)):
        study.enqueue_trial({"lr": lr, "weight_decay": decay})
    study.optimize(lambda t: t.suggest_float("lr", 1e-4, 10) + t.suggest_float("weight_decay", 0, 1), n_trials=3)
    study.ask()  # one that still runs
    found, told = imported(tmp_path, source, "--pin", "1")
    assert found["pinned"] == [{"lr": 0.01, "weight_decay": 0.0}]
    assert [(trial["number"], trial["value"]) for trial in found["imported"]] == [(1, 0.01), (0, 0.2)]
    assert (
        "of 3 trials 1 are pinned and 2 imported; 1 do not fit the search space; left out: 1 that did not complete"
        in told
    )
    JobSpecification.model_validate(found)
    as_json = json.loads(imported(tmp_path, source, "--pin", "1", "--json")[1])
    assert as_json == {
        "path": str(tmp_path / "new.json"),
        "num_bytes": (tmp_path / "new.json").stat().st_size,
        "num_found": 3,
        "num_pinned": 1,
        "num_imported": 2,
        "num_unfit": 1,
        "left_out": {"not_completed": 1},
    }


def test_a_table_of_wandb_or_anybody_is_imported(tmp_path: Path) -> None:
    table = tmp_path / "wandb.csv"
    table.write_text(
        '\ufeff"Name","config.lr","wd","val/loss"\n'
        '"=1+1",0.1,0.2,0.5\n"b",1e-2,,0.3\n"c",nan,0.1,0.1\n"d",0.1,0.1,NaN\n"e","x",0.1,0.2\n'
    )
    found, told = imported(tmp_path, str(table), "--value", "val/loss", "--rename", "weight_decay=wd")
    # What does not say the decay is trained with the default, and tells the sampler nothing.
    assert found["pinned"] == [{"lr": 0.01}, {"lr": 0.1, "weight_decay": 0.2}]
    assert [trial["parameters"] for trial in found["imported"]] == [{"lr": 0.1, "weight_decay": 0.2}]
    assert "of 4 trials" in told
    assert "left out: 1 without a usable value" in told
    refused = CliRunner().invoke(app, ["import", str(tmp_path / "job.yaml"), str(table), "-o", str(tmp_path / "o")])
    assert refused.exit_code != 0
    assert "has no column 'value' (it has: Name, config.lr, wd, val/loss)" in refused.output


def test_a_table_of_which_samplers_learn_nothing_says_which_parameters_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("lr,value\n0.1,0.5\n0.01,0.3\n")
    found, told = imported(tmp_path, str(tmp_path / "table.csv"))
    assert (len(found["pinned"]), found["imported"]) == (2, [])
    assert told.strip().endswith("; imported are those that say all parameters, and none says weight_decay")


def test_the_best_of_one_objective_are_pinned_in_a_job_of_several(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("lr,weight_decay,value\n0.1,0.2,0.5\n0.01,0.1,0.3\n")
    objectives = [{"metric": "validation_loss"}, {"metric": "validation_accuracy"}]
    found, told = imported(tmp_path, str(tmp_path / "table.csv"), objectives=objectives)
    assert (found["pinned"][0], found["imported"]) == ({"lr": 0.01, "weight_decay": 0.1}, [])
    assert "2 are pinned and 0 imported" in told
    plan_job(JobSpecification.model_validate(found))


@pytest.mark.parametrize(
    ("source", "options", "told"),
    [
        ("none.csv", (), "none.csv: No such file or directory"),
        ("empty.csv", (), "empty.csv: is empty: its first line must name the columns"),
        ("table.csv", ("--value", "los"), "(it has: lr, loss): did you mean 'loss'?"),
        ("table.csv", ("--value", "loss", "--rename", "lrr=lr"), "'lrr' is no parameter of the search space"),
        ("table.csv", ("--value", "loss", "-o", "none/new.json"), "cannot write none/new.json: No such file"),
        ("sqlite:///none.db", (), "sqlite:///none.db: there is no such file"),
    ],
)
def test_what_cannot_be_imported_is_told_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, options: tuple[str, ...], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text(json.dumps(JOB))
    Path("empty.csv").touch()
    Path("table.csv").write_text("lr,loss\n0.1,0.5\n")
    result = CliRunner().invoke(app, ["import", "job.yaml", source, "-o", "new.json", *options])
    assert result.exit_code == 1
    assert told in result.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty.csv", "job.yaml", "table.csv"]


def test_a_faulty_job_is_told_with_its_lines_before_anything_is_imported(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("workload: {name: digit-mlp}\nbudget:\n  num_trails: 3\n  num_trials: many\n")
    result = CliRunner().invoke(app, ["import", str(job), "none.csv", "-o", str(tmp_path / "new.json")])
    assert result.exit_code == 1
    assert f"{job}:3:3: budget.num_trails: there is no such field: did you mean 'num_trials'?" in result.output
    assert f"{job}:4:3: budget.num_trials: must be a valid integer" in result.output
    assert f"{job}:1:12: workload.name: unknown workload 'digit-mlp'" in result.output
    job.write_text("workload:\n  name: digit-mlp\nsearch_space: shampo\n")
    result = CliRunner().invoke(app, ["import", str(job), "none.csv", "-o", str(tmp_path / "new.json")])
    assert f"{job}:2:3: workload.name: unknown workload 'digit-mlp'" in result.output
    assert f"{job}:3:1: search_space: unknown preset 'shampo'" in result.output


def test_the_sampler_learns_from_what_was_imported() -> None:
    rates = [10 ** (-4 + 4 * index / 39) for index in range(40)]
    points = [
        {"source": "x", "number": index, "parameters": {"lr": lr, "weight_decay": 0.1}, "value": abs(lr - 0.02)}
        for index, lr in enumerate(rates)
    ]

    def suggested(**fields: Any) -> list[float]:
        policy = make_policy(plan_job(JobSpecification.model_validate({**JOB, **fields})))
        asked = [policy.ask() for _ in range(8)]
        return [float(str(one.parameters["lr"])) for one in asked if isinstance(one, Start)][1:]  # not the default

    def distance(rates: list[float]) -> float:
        """In decades, on average."""
        return sum(abs(math.log10(rate / 0.02)) for rate in rates) / len(rates)

    assert distance(suggested(imported=points)) < distance(suggested()) - 0.3
    assert suggested(imported=points, sampler={"name": "random"}) == suggested(sampler={"name": "random"})


def test_what_does_not_fit_is_refused_by_name() -> None:
    wrong = [{"source": "x", "number": 0, "parameters": {"lr": 7.0, "weight_decay": 0.1}, "value": 1.0}]
    with pytest.raises(InvalidInput, match=r"imported\[0\].parameters.lr"):
        plan_job(JobSpecification.model_validate({**JOB, "imported": wrong}))
    several = [{"metric": "validation_loss"}, {"metric": "step_seconds"}]
    fitting = [{**wrong[0], "parameters": {"lr": 0.1, "weight_decay": 0.1}}]
    with pytest.raises(InvalidInput, match="the job has 2 objectives: leave it out"):
        plan_job(JobSpecification.model_validate({**JOB, "imported": fitting, "objectives": several}))


def test_what_was_imported_counts_in_no_verdict(sqlite_database: Database) -> None:
    defaults = SearchSpace.from_json(SPACE).defaults()
    best = [{"source": "x", "number": 0, "parameters": dict(defaults), "value": -100.0}]
    job = finished_job(sqlite_database, search_space=SPACE, imported=best)
    with running(sqlite_database) as url:
        assert "1 imported trial of x" in httpx.get(f"{url}/jobs/{job}", trust_env=False, verify=False).text
    with sqlite_database.reading() as session:
        trials = TrialRepository(session).page(job, phase=Phase.SEARCH)
        recommendation = RecommendationRepository(session).of_job(job)
    assert len(trials) == 3  # those that were trained
    assert recommendation is not None
    assert recommendation.status is EvidenceStatus.PROVISIONAL
    assert "-100" not in json.dumps(recommendation.content)
