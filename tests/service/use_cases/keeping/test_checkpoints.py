"""The checkpoints of trials that a budget cut off stay for a week, and all others go when their job ends."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from service.domain import CutShort, TrialState
from service.scheduler.checkpoint_storage import directories_in
from service.scheduler.removal import remove_checkpoints_of_finished_jobs
from service.store.repositories import EventRepository, JobRepository
from service.store.session import Database
from service.use_cases.keeping.checkpoints import KEPT
from service.use_cases.leases import note_disk_use
from service.use_cases.run import finish_job
from service.use_cases.steer import cancel_job
from tests.support.service.scenarios import (
    NOW,
    Clock,
    begin_repeat,
    begin_trial,
    claimed_job,
    end_trial,
    measure,
    repeat_trial,
    run_trial,
)
from tests.support.service.steering import change, resume, trial_of


@pytest.mark.parametrize(("is_cancelled", "stay"), [(False, ["2", "4"]), (True, [])])
def test_those_of_trials_that_the_budget_cut_off_stay_for_a_week(
    database: Database, tmp_path: Path, is_cancelled: bool, stay: list[str]
) -> None:
    lease = claimed_job(database, budget={"num_trials": 6, "wall_clock_seconds": 20})
    run_trial(database, lease, 0, 0.5)
    run_trial(database, lease, 1, 0.6)
    begin_trial(database, lease, 2)
    repeat_trial(database, lease, 3, 0.5, confirms=0, seed=1)
    begin_repeat(database, lease, 4, confirms=0, seed=2)
    begin_trial(database, lease, 5)
    end_trial(database, lease, 5, TrialState.PRUNED)
    for number in range(7):  # the last was never stored
        (tmp_path / lease.job_id / str(number) / "step_10").mkdir(parents=True)
    clock = Clock()
    remove_checkpoints_of_finished_jobs(database, tmp_path, clock=clock)
    assert len(directories_in(tmp_path / lease.job_id)) == 7, "it has not ended"
    with database.writing() as session:
        if is_cancelled:
            cancel_job(session, lease.job_id, now=NOW)
        else:
            finish_job(session, lease, failure=None, cut_short=CutShort.BUDGET, now=NOW)
    remove_checkpoints_of_finished_jobs(database, tmp_path, clock=clock)
    assert directories_in(tmp_path / lease.job_id) == stay
    clock.now += KEPT
    remove_checkpoints_of_finished_jobs(database, tmp_path, clock=clock)
    assert directories_in(tmp_path / lease.job_id) == stay
    clock.now += timedelta(seconds=1)
    remove_checkpoints_of_finished_jobs(database, tmp_path, clock=clock)
    assert directories_in(tmp_path) == []


def test_they_stay_for_as_long_as_is_set_and_what_goes_is_no_part_of_the_disk_that_the_job_takes(
    database: Database, tmp_path: Path
) -> None:
    lease = claimed_job(database, baselines=[], budget={"num_trials": 4, "wall_clock_seconds": 20})
    run_trial(database, lease, 0, 0.5)
    begin_trial(database, lease, 1)
    with database.writing() as session:
        finish_job(session, lease, failure=None, cut_short=CutShort.BUDGET, now=NOW)
        note_disk_use(session, lease.job_id, 1500)
        events = EventRepository(session).last_id(lease.job_id)
    checkpoint = tmp_path / lease.job_id / "1" / "step_10"
    checkpoint.mkdir(parents=True)
    (checkpoint / "rank-0.bin").write_bytes(bytes(1000))
    clock, kept = Clock(), timedelta(hours=1)
    clock.now += kept
    remove_checkpoints_of_finished_jobs(database, tmp_path, kept=kept, clock=clock)
    assert _looks(database, lease.job_id) == (1500, events)
    clock.now += timedelta(seconds=1)
    remove_checkpoints_of_finished_jobs(database, tmp_path, kept=kept, clock=clock)
    num_bytes, told = _looks(database, lease.job_id)
    assert num_bytes == 500
    assert told > events, "open pages look again"
    remove_checkpoints_of_finished_jobs(database, tmp_path, kept=kept, clock=clock)
    assert _looks(database, lease.job_id) == (500, told)


def _looks(database: Database, job_id: str) -> tuple[int | None, int]:
    """The bytes that a job is said to take, and its last event."""
    with database.reading() as session:
        return JobRepository(session).get(job_id).disk_bytes, EventRepository(session).last_id(job_id)


@pytest.mark.parametrize(("days", "step"), [(7, 10), (8, 0)])
def test_trials_go_on_for_as_long_as_their_checkpoints_stay(database: Database, days: int, step: int) -> None:
    lease = claimed_job(database, baselines=[], budget={"num_trials": 4, "wall_clock_seconds": 20})
    run_trial(database, lease, 0, 0.5)
    begin_trial(database, lease, 1)
    measure(database, lease, 1, 10, 0.9)
    with database.writing() as session:
        finish_job(session, lease, failure=None, cut_short=CutShort.BUDGET, now=NOW)
    change(database, lease.job_id, wall_clock_seconds=100.0)
    resume(database, lease.job_id, after=timedelta(days=days).total_seconds())
    trial = trial_of(database, lease.job_id, 1)
    assert (trial.state, trial.step) == (TrialState.QUEUED, step)


def test_trials_that_others_train_begin_again(database: Database) -> None:
    lease = claimed_job(
        database,
        workload={"name": "external"},
        external={"metrics": {"validation_loss": "minimize"}},
        search_space="shampoo",
        training={"num_steps": 40},
        baselines=[],
        budget={"num_trials": 4, "wall_clock_seconds": 20},
    )
    run_trial(database, lease, 0, 0.5)
    begin_trial(database, lease, 1)
    measure(database, lease, 1, 10, 0.9)
    with database.writing() as session:
        finish_job(session, lease, failure=None, cut_short=CutShort.BUDGET, now=NOW)
    change(database, lease.job_id, wall_clock_seconds=100.0)
    resume(database, lease.job_id)
    trial = trial_of(database, lease.job_id, 1)
    assert (trial.state, trial.step) == (TrialState.QUEUED, 0)
