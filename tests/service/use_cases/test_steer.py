"""Pausing, resuming and extending jobs; stopping and retrying trials: what changes in the rows."""

from __future__ import annotations

import pytest

from service.domain import JobRequest, JobState, TrialState
from service.errors import (
    JobAlreadyFinished,
    NotFound,
)
from service.store.repositories import TrialRepository
from service.store.session import Database
from service.use_cases.steer import cancel_job
from tests.support.service.scenarios import (
    NOW,
    add_worker,
    begin_trial,
    claim,
    claimed_job,
    measure,
    run_trial,
    submit,
)
from tests.support.service.steering import (
    change,
    elapsed,
    job_of,
    later,
    pause,
    release,
    resume,
    retry,
    stop,
    trial_of,
)


def test_a_queued_job_is_paused_at_once_and_no_worker_takes_it(database: Database) -> None:
    job_id = submit(database)
    assert pause(database, job_id).state is JobState.PAUSED
    assert pause(database, job_id).state is JobState.PAUSED
    worker = add_worker(database)
    assert claim(database, worker) is None
    assert resume(database, job_id).state is JobState.QUEUED
    assert resume(database, job_id).state is JobState.QUEUED
    assert claim(database, worker) is not None


@pytest.mark.parametrize("crash", [None, "killed by SIGKILL"])
def test_a_running_job_is_paused_when_its_run_has_ended(database: Database, crash: str | None) -> None:
    lease = claimed_job(database)
    run_trial(database, lease, 0, 0.5)
    begin_trial(database, lease, 1)
    for _ in range(2):
        job = pause(database, lease.job_id)
        assert (job.state, job.requested) == (JobState.RUNNING, JobRequest.PAUSE)
    measure(database, lease, 1, 10, 0.9)  # the run still writes what it has
    assert release(database, lease, after=5, crash=crash) is JobState.PAUSED
    job = job_of(database, lease.job_id)
    assert (job.requested, job.lease_worker_id, job.crashes) == (None, None, 0)
    trial = trial_of(database, lease.job_id, 1)
    assert (trial.state, trial.detail) == (TrialState.QUEUED, "paused; goes on from its last checkpoint")
    assert trial_of(database, lease.job_id, 0).state is TrialState.COMPLETED


def test_a_job_whose_worker_is_dead_is_paused_at_once_or_by_whoever_would_take_it(database: Database) -> None:
    lease = claimed_job(database)
    begin_trial(database, lease, 0)
    pause(database, lease.job_id, after=10)
    assert claim(database, add_worker(database), now=later(31)) is None
    assert job_of(database, lease.job_id).state is JobState.PAUSED

    other = claimed_job(database)
    assert pause(database, other.job_id, after=31).state is JobState.PAUSED


def test_only_time_in_state_running_is_wall_clock_time(database: Database) -> None:
    lease = claimed_job(database, budget={"num_trials": 4, "wall_clock_seconds": 60})
    assert elapsed(database, lease.job_id, after=20) == 20
    pause(database, lease.job_id, after=20)
    release(database, lease, after=21)
    assert elapsed(database, lease.job_id, after=500) == 21
    resume(database, lease.job_id, after=500)
    again = claim(database, add_worker(database), now=later(510))
    assert again is not None
    assert elapsed(database, lease.job_id, after=515) == 26
    # The worker dies unseen: its lease ended at 540, so nothing after that was running.
    assert elapsed(database, lease.job_id, after=10_000) == 51
    claim(database, add_worker(database), now=later(10_000))
    assert job_of(database, lease.job_id).running_seconds == 51


def test_resuming_a_job_that_is_about_to_pause_has_it_go_on(database: Database) -> None:
    lease = claimed_job(database)
    begin_trial(database, lease, 0)
    pause(database, lease.job_id)
    assert resume(database, lease.job_id).state is JobState.RUNNING
    assert release(database, lease) is JobState.QUEUED


def test_cancelling_works_while_a_job_pauses_and_when_it_is_paused(database: Database) -> None:
    for ended in (False, True):
        lease = claimed_job(database)
        begin_trial(database, lease, 0)
        pause(database, lease.job_id)
        if ended:
            release(database, lease)
        with database.writing() as session:
            assert cancel_job(session, lease.job_id, now=NOW).state is JobState.CANCELLED
        assert trial_of(database, lease.job_id, 0).state is TrialState.CANCELLED
        with pytest.raises(JobAlreadyFinished, match="cancelled"):
            pause(database, lease.job_id)


def test_unknown_jobs_and_trials_are_not_found(database: Database) -> None:
    job_id = submit(database)
    for action in (pause, resume, change):
        with pytest.raises(NotFound, match="job_nope"):
            action(database, "job_nope")
    for act in (stop, retry):
        with pytest.raises(NotFound, match=f"{job_id}/7"):
            act(database, job_id, 7)


def test_cancelling_ends_the_job_and_its_unfinished_trials(database: Database) -> None:
    lease = claimed_job(database)
    run_trial(database, lease, 0, 0.5)
    begin_trial(database, lease, 1)
    with database.writing() as session:
        job = cancel_job(session, lease.job_id, now=NOW)
    assert (job.state, job.finished_at, job.lease_worker_id) == (JobState.CANCELLED, NOW, None)
    with database.reading() as session:
        states = [trial.state for trial in TrialRepository(session).page(lease.job_id)]
    assert states == [TrialState.COMPLETED, TrialState.CANCELLED]
    with database.writing() as session, pytest.raises(JobAlreadyFinished):
        cancel_job(session, lease.job_id, now=NOW)


def test_cancelling_an_unknown_job_is_not_found(database: Database) -> None:
    with database.writing() as session, pytest.raises(NotFound):
        cancel_job(session, "job_nope", now=NOW)
