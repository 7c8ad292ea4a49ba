"""Stopping and retrying trials: what changes in the rows."""

from __future__ import annotations

import pytest

from service.domain import FailureReason, JobRequest, JobState, TrialRequest, TrialState
from service.errors import (
    LeaseLost,
    TrialAlreadyFinished,
    TrialNotRetriable,
)
from service.store.repositories import JobRepository, RecommendationRepository, TrialRepository
from service.store.session import Database
from service.use_cases.leases import lock_leased_job
from service.use_cases.progress import progress_of
from service.use_cases.steer import cancel_job, change_budget, resume_job
from tests.support.service.live import finished_job
from tests.support.service.scenarios import (
    NOW,
    add_worker,
    begin_trial,
    claim,
    claimed_job,
    end_trial,
    measure,
    run_trial,
)
from tests.support.service.steering import (
    finished,
    job_of,
    later,
    pause,
    release,
    retry,
    stop,
    trial_of,
)


def test_a_trial_of_a_running_job_is_asked_to_stop_and_cancelled_if_the_run_dies_first(database: Database) -> None:
    lease = claimed_job(database)
    run_trial(database, lease, 0, 0.5)
    begin_trial(database, lease, 1)
    for _ in range(2):
        trial = stop(database, lease.job_id, 1)
        assert (trial.state, trial.requested) == (TrialState.RUNNING, TrialRequest.STOP)
    with database.reading() as session:
        assert TrialRepository(session).numbers_to_stop(lease.job_id) == [1]
    assert release(database, lease, crash="killed") is JobState.QUEUED
    trial = trial_of(database, lease.job_id, 1)
    assert (trial.state, trial.detail, trial.requested) == (TrialState.CANCELLED, "stopped by a user", None)
    with pytest.raises(TrialAlreadyFinished, match=r"trial 0 .* has already ended: completed"):
        stop(database, lease.job_id, 0)


def test_a_waiting_trial_of_a_paused_job_is_cancelled_at_once(database: Database) -> None:
    lease = claimed_job(database)
    begin_trial(database, lease, 0)
    pause(database, lease.job_id)
    release(database, lease)
    assert stop(database, lease.job_id, 0).state is TrialState.CANCELLED


@pytest.mark.parametrize(
    ("ending", "reason"),
    [(TrialState.PRUNED, None), (TrialState.FAILED, FailureReason.ERROR), (TrialState.CANCELLED, None)],
)
def test_a_trial_is_tried_again_by_the_next_run(
    database: Database, ending: TrialState, reason: FailureReason | None
) -> None:
    lease = claimed_job(database)
    begin_trial(database, lease, 0)
    measure(database, lease, 0, 10, 0.9)
    end_trial(database, lease, 0, ending, reason=reason, detail="why")
    before = trial_of(database, lease.job_id, 0)
    trial = retry(database, lease.job_id, 0)
    assert (trial.state, trial.reason, trial.finished_at, trial.step) == (TrialState.QUEUED, None, None, 0)
    assert (trial.config, trial.parameters) == (before.config, before.parameters)
    assert job_of(database, lease.job_id).requested is JobRequest.RESTART
    with pytest.raises(TrialNotRetriable, match="is queued"):
        retry(database, lease.job_id, 0)
    release(database, lease)
    again = claim(database, add_worker(database))
    assert again is not None
    assert job_of(database, lease.job_id).requested is None


def test_a_completed_trial_is_not_tried_again(database: Database) -> None:
    lease = finished(database)
    with pytest.raises(TrialNotRetriable, match="is completed: only a pruned, failed or cancelled one"):
        retry(database, lease.job_id, 0)


def test_a_retried_trial_of_a_finished_job_has_the_job_go_on(database: Database) -> None:
    lease = finished(database)
    retry(database, lease.job_id, 3)
    assert job_of(database, lease.job_id).state is JobState.QUEUED
    with database.reading() as session:
        assert RecommendationRepository(session).of_job(lease.job_id) is not None


def test_training_time_counts_once_for_each_step_that_was_trained(database: Database) -> None:
    """Seconds are a hundredth of the step in these tests."""
    lease = claimed_job(database, resources={"workers_per_trial": 2})
    begin_trial(database, lease, 0)

    def spent(*steps: int, offset: float = 0.0) -> float:
        for step in steps:
            measure(database, lease, 0, step, 0.9, offset=offset)
        return round(trial_of(database, lease.job_id, 0).spent_seconds, 6)

    assert spent(10, 20, 30) == 0.3
    assert spent(20) == 0.3  # after a loss, the checkpoint's measurement again
    assert spent(30, offset=0.01) == 0.41  # ten steps trained again, and slower
    assert spent(10, offset=0.02) == 0.53  # the checkpoints were lost: from the beginning
    assert spent(10, offset=0.02) == 0.53  # a write that was repeated
    end_trial(database, lease, 0, TrialState.FAILED, reason=FailureReason.ERROR)
    retry(database, lease.job_id, 0)
    with database.reading() as session:
        job = JobRepository(session).get(lease.job_id)
        progress = progress_of(session, [job], now=NOW)[lease.job_id]
    assert progress.device_hours == pytest.approx(0.53 * 2 / 3600)


def test_a_job_that_had_succeeded_has_so_again_when_what_it_was_to_try_more_is_cancelled(database: Database) -> None:
    job_id = finished_job(database)
    with database.writing() as session:
        change_budget(session, job_id, {"num_trials": 8}, now=NOW)
        resume_job(session, job_id, now=later(1))
    lease = claim(database, add_worker(database), now=later(2))
    assert lease is not None
    begin_trial(database, lease, 4, now=later(3))
    measure(database, lease, 4, 40, 0.1)
    end_trial(database, lease, 4, TrialState.COMPLETED, now=later(4))
    begin_trial(database, lease, 5, now=later(5))
    with database.writing() as session:
        job = cancel_job(session, job_id, now=later(6))
        assert (job.state, job.failure, job.num_trials) == (JobState.SUCCEEDED, None, 6)
        recommended = RecommendationRepository(session).of_job(job_id)
        assert recommended is not None
        assert recommended.content["evidence"]["best"]["number"] == 4, "made anew with what was tried more"
    with database.writing() as session, pytest.raises(LeaseLost):
        lock_leased_job(session, lease)
    with database.writing() as session:
        change_budget(session, job_id, {"num_trials": 10}, now=later(7))
        resume_job(session, job_id, now=later(8))
        assert cancel_job(session, job_id, now=later(9)).state is JobState.SUCCEEDED
