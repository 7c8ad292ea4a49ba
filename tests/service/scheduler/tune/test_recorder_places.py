"""The places of a trial: those where its ranks ran, and faults of those that it writes to: a full disk, a checkpoint
that does not fit."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from service.domain import FailureReason, TrialState
from service.places import NodePlace
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


def test_the_places_of_each_run_are_stored_also_of_one_that_fails_unmeasured(
    sqlite_database: Database, tmp_path: Path
) -> None:
    tune = Tune(sqlite_database, tmp_path)
    first, second = NodePlace("a", ("0", "3")), NodePlace("b", ())
    trial = tune.begin()
    tune.give(trial, dataclasses.replace(measured(10), places=(first,)))
    tune.give(trial, measured(20))
    tune.recorder.on_trial_error(0, [], trial)
    trial = tune.begin()
    assert TrialOrder.from_tune(trial.config).number == 0
    failed = TrialReport("failed", reason=FailureReason.ERROR, detail="no such file", places=(first, second))
    tune.give(trial, failed)
    [stored] = tune.stored()
    assert (stored.state, stored.runs) == (TrialState.FAILED, 2)
    assert stored.places == {"1": [first.to_json()], "2": [first.to_json(), second.to_json()]}
