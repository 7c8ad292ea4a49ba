"""Tables: which of their rows are results of the job's optimizer, and what is said of the others."""

from __future__ import annotations

import json
from pathlib import Path

import optuna
import pytest
from typer.testing import CliRunner

from service.cli.commands import app
from service.domain import Phase, TrialState
from service.store.session import Database
from tests.service.imports.importing import SPACE, imported
from tests.support.service.live import running
from tests.support.service.scenarios import (
    begin_trial,
    claimed_job,
    end_trial,
    fork_trial,
    measure,
    measure_curve,
    store_trials,
    submit,
)


@pytest.mark.slow
def test_of_our_own_export_only_results_of_the_jobs_optimizer_are_taken(
    tmp_path: Path, sqlite_database: Database
) -> None:
    earlier = submit(sqlite_database, search_space=SPACE)  # with the baseline adamw
    store_trials(
        sqlite_database,
        earlier,
        [
            {"value": 0.9, "parameters": {"lr": 0.1, "weight_decay": 0.1}},
            {"value": 0.8, "parameters": {"lr": 0.2, "weight_decay": 0.1}},
            {"value": 0.1, "parameters": {"lr": 0.3, "weight_decay": 0.1}, "phase": Phase.BASELINE},
            {"value": 0.2, "parameters": {"lr": 0.4, "weight_decay": 0.1}, "phase": Phase.CONFIRMATION},
            {"value": 0.3, "parameters": {"lr": 0.5, "weight_decay": 0.1}, "state": TrialState.PRUNED},
            {"value": 0.4, "parameters": {"lr": 0.6, "weight_decay": 0.1}, "state": TrialState.FAILED},
            {"value": None, "parameters": {"lr": 0.7, "weight_decay": 0.1}},
        ],
    )
    table = tmp_path / "exported.csv"
    with running(sqlite_database) as url:
        written = CliRunner().invoke(app, ["export", earlier, "-o", str(table), "--url", url])
    assert written.exit_code == 0, written.output
    found, told = imported(tmp_path, str(table))
    assert [(one["lr"], one["weight_decay"]) for one in found["pinned"]] == [(0.2, 0.1), (0.1, 0.1)]
    assert [(trial["number"], trial["value"]) for trial in found["imported"]] == [(1, 0.8), (0, 0.9)]
    assert (
        "of 2 trials 2 are pinned and 2 imported; 0 do not fit the search space; left out: 1 whose optimizer is not "
        "shampoo, 1 of a confirmation, 2 that did not complete, 1 without a usable value"
    ) in told
    # What was a baseline there is a search of its optimizer here.
    found, told = imported(tmp_path, str(table), search_space={**SPACE, "optimizer": "adamw"})
    assert [one["lr"] for one in found["pinned"]] == [0.3]
    assert "left out: 6 whose optimizer is not adamw" in told


@pytest.mark.slow
def test_of_a_population_no_fork_is_taken(tmp_path: Path, sqlite_database: Database) -> None:
    lease = claimed_job(
        sqlite_database, search_space=SPACE, pruner={"name": "pbt"}, baseline=None, budget={"num_trials": 6}
    )
    begin_trial(sqlite_database, lease, 0, values={"lr": 0.1})
    measure_curve(sqlite_database, lease, 0, {10: 0.9, 40: 0.5})
    fork_trial(sqlite_database, lease, 1, parent=0, step=10, lr=0.2)
    measure(sqlite_database, lease, 1, 40, 0.4)
    for number in (0, 1):
        end_trial(sqlite_database, lease, number)
    table = tmp_path / "exported.csv"
    with running(sqlite_database) as url:
        written = CliRunner().invoke(app, ["export", lease.job_id, "-o", str(table), "--url", url])
    assert written.exit_code == 0, written.output
    found, told = imported(tmp_path, str(table))
    assert [one["lr"] for one in found["pinned"]] == [0.1]
    assert "left out: 1 forked from others" in told


@pytest.mark.slow
def test_of_a_data_frame_of_optuna_only_completed_trials_are_taken(tmp_path: Path) -> None:
    study = optuna.create_study()

    def objective(trial: optuna.Trial) -> float:
        lr = trial.suggest_float("lr", 1e-4, 1) + 0 * trial.suggest_float("weight_decay", 0, 0.5)
        trial.report(lr, 0)
        if trial.number == 1:
            raise optuna.TrialPruned
        if trial.number == 2:
            raise ArithmeticError
        return lr

    for lr in (0.5, 0.1, 0.2, 0.4):
        study.enqueue_trial({"lr": lr, "weight_decay": 0.0})
    study.optimize(objective, n_trials=4, catch=ArithmeticError)
    study.ask()
    frame = study.trials_dataframe()
    assert list(frame["state"]) == ["COMPLETE", "PRUNED", "FAIL", "COMPLETE", "RUNNING"]
    assert frame["value"][1] == 0.1  # Optuna's word for how far a pruned one came
    frame.to_csv(tmp_path / "frame.csv")
    found, told = imported(tmp_path, str(tmp_path / "frame.csv"))
    assert [one["lr"] for one in found["pinned"]] == [0.4, 0.5]
    assert "left out: 3 that did not complete" in told


def test_a_table_of_wandb_says_which_runs_finished(tmp_path: Path) -> None:
    table = tmp_path / "wandb.csv"
    table.write_text("Name,State,lr,loss\na,finished,0.1,0.5\nb,crashed,0.2,0.4\nc,running,0.3,0.3\n")
    found, told = imported(tmp_path, str(table), "--value", "loss")
    assert found["pinned"] == [{"lr": 0.1}]
    assert "left out: 2 that did not complete" in told
    as_json = json.loads(imported(tmp_path, str(table), "--value", "loss", "--json")[1])
    assert (as_json["num_found"], as_json["left_out"]) == (1, {"not_completed": 2})


@pytest.mark.parametrize("column", ["state", "optimizer", "phase", "forked_from"])
def test_a_column_that_is_renamed_to_a_parameter_says_nothing_else(tmp_path: Path, column: str) -> None:
    table = tmp_path / "table.csv"
    table.write_text(f"{column},value\n0.1,0.5\n0.2,0.4\n")
    found, told = imported(tmp_path, str(table), "--rename", f"lr={column}")
    assert found["pinned"] == [{"lr": 0.2}, {"lr": 0.1}]
    assert "left out" not in told


@pytest.mark.parametrize("cell", ["9" * 400, "9" * 5000, "[" * 100_000, "1e999", "1e300", "True"])
def test_a_cell_that_is_no_usable_number_is_no_value(tmp_path: Path, cell: str) -> None:
    table = tmp_path / "table.csv"
    table.write_text(f"lr,value\n0.1,{cell}\n{cell},0.5\n0.2,0.4\n")
    found, told = imported(tmp_path, str(table))
    assert found["pinned"] == [{"lr": 0.2}]
    assert "of 2 trials 1 are pinned and 0 imported; 1 do not fit the search space" in told
    assert "left out: 1 without a usable value" in told
