"""Trials that do not fit into memory: what is tried once more, and what is never launched."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.domain import FailureReason, TrialState
from service.scheduler.policy.feasibility import Feasibility
from service.scheduler.tune.messages import TrialOrder, TrialReport
from service.specification.job import Budget, ConfirmationChoice, JobSpecification
from service.store.session import Database
from tests.support.service.searching.tune_calls import SPECIFICATION, Tune, measured
from trainers.config import TrialConfig


def test_a_trial_that_runs_out_of_memory_gets_one_more_try_and_is_then_infeasible(
    sqlite_database: Database, tmp_path: Path
) -> None:
    tune = Tune(sqlite_database, tmp_path)
    (tmp_path / "0").mkdir()
    failure = TrialReport("failed", reason=FailureReason.OUT_OF_MEMORY, detail="no room for 7 GiB")
    tune.give(tune.begin(), failure)
    [stored] = tune.stored()
    assert (stored.state, stored.memory_failures) == (TrialState.QUEUED, 1)
    assert (tmp_path / "0").exists()
    again = tune.begin()
    order = TrialOrder.from_tune(again.config)
    assert order.config.accumulation_steps == stored.config["accumulation_steps"] == 2
    assert order.config.batch_size == stored.config["batch_size"]
    tune.give(again, failure)
    [stored] = tune.stored()
    assert (stored.state, stored.reason) == (TrialState.FAILED, FailureReason.INFEASIBLE)
    assert stored.detail == "out of memory 2 times, with smaller parts of the batch too: no room for 7 GiB"
    assert not (tmp_path / "0").exists()


def test_new_seeds_begin_with_the_parts_in_which_the_config_fitted(sqlite_database: Database, tmp_path: Path) -> None:
    confirmed = SPECIFICATION.model_copy(
        update={"budget": Budget(num_trials=1), "confirmation": ConfirmationChoice(top_k=1, num_seeds=2)}
    )
    tune = Tune(sqlite_database, tmp_path, specification=confirmed)
    tune.give(tune.begin(), TrialReport("failed", reason=FailureReason.OUT_OF_MEMORY, detail="no room"))
    tune.give(tune.begin(), measured(40, kind="completed"))
    orders = [TrialOrder.from_tune(tune.begin().config) for _ in range(2)]
    assert [(order.number, order.config.accumulation_steps) for order in orders] == [(1, 2), (2, 2)]
    assert [trial.config["accumulation_steps"] for trial in tune.stored()] == [2, 2, 2]


def lr_in_bytes(config: TrialConfig) -> int:
    """A prediction that tells trials apart: a million for each unit of the learning rate."""
    return round(1e6 * float(str(config.optimizer.arguments["lr"])))


def by_learning_rate(*values: float) -> JobSpecification:
    """A job that tries these learning rates, the first one as its default."""
    lr = {"type": "float", "name": "lr", "low": 1e-4, "high": 1.0, "default": values[0]}
    return SPECIFICATION.model_copy(
        update={
            "search_space": {"optimizer": "adamw", "parameters": [lr]},
            "pinned": [{"lr": value} for value in values[1:]],
            "budget": Budget(num_trials=len(values)),
        }
    )


def test_a_trial_that_cannot_fit_fails_without_being_launched_and_the_search_hears_of_it(
    sqlite_database: Database, tmp_path: Path
) -> None:
    feasibility = Feasibility(lr_in_bytes, lambda: 1000)
    tune = Tune(
        sqlite_database, tmp_path, specification=by_learning_rate(0.1, 1e-3, 0.2, 5e-4), feasibility=feasibility
    )
    assert TrialOrder.from_tune(tune.begin().config).number == 1
    [first, second] = tune.stored()
    assert (first.state, first.reason) == (TrialState.FAILED, FailureReason.INFEASIBLE)
    assert (first.runs, first.started_at, first.spent_seconds) == (0, None, 0.0)
    assert first.detail is not None
    assert first.detail.startswith("weights, gradients and optimizer need ")
    assert second.state is TrialState.RUNNING
    assert TrialOrder.from_tune(tune.begin().config).number == 3
    with pytest.raises(ValueError, match="trial 2 has already ended"):  # the policy knows
        tune.policy.tell(2, TrialState.COMPLETED)


def test_when_the_limit_is_unknown_everything_is_launched(sqlite_database: Database, tmp_path: Path) -> None:
    feasibility = Feasibility(lr_in_bytes, lambda: None)
    tune = Tune(sqlite_database, tmp_path, specification=by_learning_rate(0.1, 0.2), feasibility=feasibility)
    assert [TrialOrder.from_tune(tune.begin().config).number for _ in range(2)] == [0, 1]


def test_what_needs_more_than_a_trial_that_ran_out_of_memory_is_not_launched(
    sqlite_database: Database, tmp_path: Path
) -> None:
    feasibility = Feasibility(lr_in_bytes, lambda: 1_000_000)
    values = by_learning_rate(0.1, 0.2, 0.05, 0.09)
    tune = Tune(sqlite_database, tmp_path, specification=values, feasibility=feasibility)
    out_of_memory = TrialReport("failed", reason=FailureReason.OUT_OF_MEMORY, detail="no room for 7 GiB")
    tune.give(tune.begin(), out_of_memory)
    again = tune.begin()  # once more, although nothing larger is tried
    assert TrialOrder.from_tune(again.config).number == 0
    tune.give(again, out_of_memory)
    assert [TrialOrder.from_tune(tune.begin().config).number for _ in range(2)] == [2, 3]
    [first, second, *others] = tune.stored()
    assert (first.reason, second.reason, second.runs) == (FailureReason.INFEASIBLE, FailureReason.INFEASIBLE, 0)
    assert second.detail is not None
    assert second.detail.startswith("trial 0 ran out of memory")
    assert [trial.state for trial in others] == [TrialState.RUNNING] * 2


def test_a_trial_that_fits_at_its_second_try_keeps_nothing_from_being_launched(
    sqlite_database: Database, tmp_path: Path
) -> None:
    feasibility = Feasibility(lr_in_bytes, lambda: 1_000_000)
    tune = Tune(sqlite_database, tmp_path, specification=by_learning_rate(0.1, 0.2), feasibility=feasibility)
    tune.give(tune.begin(), TrialReport("failed", reason=FailureReason.OUT_OF_MEMORY, detail="no room"))
    tune.give(tune.begin(), measured(40, kind="completed"))
    assert TrialOrder.from_tune(tune.begin().config).number == 1
