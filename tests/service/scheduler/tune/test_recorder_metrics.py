"""Trials that do not measure what their job goes by."""

from __future__ import annotations

from pathlib import Path

from service.domain import FailureReason, TrialState
from service.specification.job import Constraint, ObjectiveChoice
from service.store.session import Database
from tests.support.service.searching.tune_calls import SPECIFICATION, Tune, measured


def test_a_trial_that_does_not_measure_the_objective_fails(sqlite_database: Database, tmp_path: Path) -> None:
    tune = Tune(sqlite_database, tmp_path)
    tune.give(tune.begin(), measured(40, kind="completed", metrics={"train_loss": 1.0}))
    [stored] = tune.stored()
    assert (stored.state, stored.reason) == (TrialState.FAILED, FailureReason.ERROR)
    assert stored.detail == "the workload did not measure 'validation_loss', only: train_loss"


def test_a_trial_that_does_not_measure_a_further_objective_or_a_bounded_metric_fails_and_says_so(
    sqlite_database: Database, tmp_path: Path
) -> None:
    objectives = [ObjectiveChoice(metric="validation_loss"), ObjectiveChoice(metric="tokens_per_second")]
    several = SPECIFICATION.model_copy(update={"objectives": objectives})
    tune = Tune(sqlite_database, tmp_path, specification=several)
    assert tune.give(tune.begin(), measured(10, metrics={"validation_loss": 1.0})) == "STOP"  # at once, not at its end
    [stored] = tune.stored()
    assert (stored.state, stored.reason) == (TrialState.FAILED, FailureReason.ERROR)
    detail = "the workload did not measure 'tokens_per_second', only: validation_loss"
    assert stored.detail == detail
    bound = Constraint(metric="tokens_per_second", min=5.0)
    tune = Tune(sqlite_database, tmp_path, constraints=[bound])
    tune.give(tune.begin(), measured(10, metrics={"validation_loss": 1.0}))
    [stored] = tune.stored()
    assert (stored.state, stored.reason, stored.detail) == (TrialState.FAILED, FailureReason.ERROR, detail)
