"""Faults of the places that a trial writes to, and not of the trial: a full disk, a checkpoint that does not fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.domain import FailureReason, TrialState
from service.scheduler.tune.messages import TrialOrder, TrialReport
from service.scheduler.tune.run_end import Ending, RunEnded
from service.store.session import Database
from tests.support.service.searching.tune_calls import Tune, measured


def test_a_full_disk_ends_the_run_and_leaves_the_trial_as_it_is(sqlite_database: Database, tmp_path: Path) -> None:
    tune = Tune(sqlite_database, tmp_path)
    trial = tune.begin()
    tune.give(trial, measured(10))
    failed = TrialReport("failed", reason=FailureReason.STORE_FAILED, detail="No space left on device")
    tune.signals.has_room = False
    with pytest.raises(RunEnded) as ended:
        tune.give(trial, failed)
    assert ended.value.ending is Ending.NO_ROOM
    assert ended.value.ending.gives_back
    [stored] = tune.stored()
    assert (stored.state, stored.losses) == (TrialState.RUNNING, 0)


def test_a_full_disk_that_has_room_again_costs_a_trial_one_of_its_goes(
    sqlite_database: Database, tmp_path: Path
) -> None:
    tune = Tune(sqlite_database, tmp_path)
    tune.give(tune.begin(), TrialReport("failed", reason=FailureReason.STORE_FAILED, detail="No space left on device"))
    [stored] = tune.stored()
    assert (stored.state, stored.losses) == (TrialState.QUEUED, 1)


def test_trials_whose_checkpoints_do_not_fit_begin_anew_once_and_stop_no_job(
    sqlite_database: Database, tmp_path: Path
) -> None:
    tune = Tune(sqlite_database, tmp_path)
    failed = TrialReport("failed", reason=FailureReason.ERROR, detail="CheckpointMismatch: of before", begins_anew=True)
    trial = tune.begin()
    (tmp_path / "0").mkdir()
    tune.give(trial, failed)
    [stored] = tune.stored()
    assert (stored.state, stored.losses) == (TrialState.QUEUED, 1)
    assert stored.detail == "begins anew, without its checkpoint: CheckpointMismatch: of before"
    assert not (tmp_path / "0").exists()
    again = tune.begin()
    assert TrialOrder.from_tune(again.config).number == 0
    tune.give(again, failed)
    [stored] = tune.stored()
    assert (stored.state, stored.reason) == (TrialState.FAILED, FailureReason.ERROR)
