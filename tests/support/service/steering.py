"""Steps of users who steer a job, for tests."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from service.domain import JobState, Phase, TrialState
from service.store.models import Job, Trial
from service.store.repositories import JobRepository, TrialRepository
from service.store.session import Database
from service.use_cases import steer, steer_trials
from service.use_cases.leases import Lease, release_job
from service.use_cases.progress import progress_of
from service.use_cases.run import finish_job
from tests.support.service.scenarios import (
    NOW,
    begin_trial,
    claimed_job,
    end_trial,
    measure,
    run_trial,
)


def later(seconds: float) -> Any:
    return NOW + timedelta(seconds=seconds)


def job_of(database: Database, job_id: str) -> Job:
    with database.reading() as session:
        return JobRepository(session).get(job_id)


def trial_of(database: Database, job_id: str, number: int) -> Trial:
    with database.reading() as session:
        return TrialRepository(session).get(job_id, number)


def pause(database: Database, job_id: str, *, after: float = 0.0) -> Job:
    with database.writing() as session:
        return steer.pause_job(session, job_id, now=later(after))


def resume(database: Database, job_id: str, *, after: float = 0.0) -> Job:
    with database.writing() as session:
        return steer.resume_job(session, job_id, now=later(after))


def change(database: Database, job_id: str, **changes: Any) -> Job:
    with database.writing() as session:
        return steer.change_budget(session, job_id, changes, now=NOW)


def stop(database: Database, job_id: str, number: int) -> Trial:
    with database.writing() as session:
        return steer_trials.stop_trial(session, job_id, number, now=NOW)[1]


def retry(database: Database, job_id: str, number: int) -> Trial:
    with database.writing() as session:
        return steer_trials.retry_trial(session, job_id, number, now=NOW)[1]


def release(database: Database, lease: Lease, *, after: float = 0.0, crash: str | None = None) -> JobState | None:
    with database.writing() as session:
        return release_job(session, lease, now=later(after), crash=crash)


def finish(database: Database, lease: Lease, *, failure: str | None = None) -> JobState:
    with database.writing() as session:
        return finish_job(session, lease, failure=failure, now=NOW)


def finished(database: Database, **fields: Any) -> Lease:
    """The lease of a job that has had all of its four trials, one of which was pruned."""
    lease = claimed_job(database, **fields)
    for number, phase in enumerate([Phase.SEARCH, Phase.BASELINE, Phase.SEARCH]):
        run_trial(database, lease, number, 0.5, phase)
    begin_trial(database, lease, 3)
    measure(database, lease, 3, 10, 0.9)
    end_trial(database, lease, 3, TrialState.PRUNED)
    assert finish(database, lease) is JobState.SUCCEEDED
    return lease


def elapsed(database: Database, job_id: str, *, after: float) -> float | None:
    with database.reading() as session:
        job = JobRepository(session).get(job_id)
        return progress_of(session, [job], now=later(after))[job_id].seconds_elapsed
