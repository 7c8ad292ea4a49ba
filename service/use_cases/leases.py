"""Use cases of workers: who may run which job.

A worker claims a job by lease and renews the lease while its run lives. Each claim increments `Job.attempt`. This
number fences the run's writes, so a run whose lease went to another worker can no longer change anything.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from ulid import ULID

from service.access.quotas import resting_projects
from service.domain import CancelCause, JobRequest, JobState, TrialRequest, TrialState
from service.errors import LeaseLost, NotFound
from service.store.migrate import check_version
from service.store.models import Job, Worker
from service.store.repositories import EventRepository, JobRepository, TrialRepository, WorkerRepository
from service.store.repositories.of_trials.outputs import OutputRepository
from service.store.session import UNREADABLE_ROWS, Session
from service.use_cases.transitions import (
    cancel_unfinished_trials,
    move_job,
    move_trial,
    record_change_event,
    stop,
    storable,
)

logger = logging.getLogger(__name__)

MAX_FAILURE_LENGTH = 2000
"""Most characters that are kept of the error of a row that cannot be read: the error can repeat the whole row."""
MAX_CRASHES = 3
"""Runs in a row that may die without progress before the job fails.

Progress is a step that was never measured before, or a trial that ended. A trial whose checkpoints are lost repeats its
first steps in each run: if that counted, a job that kills its run at the same place each time would never end.
"""
EXTERNAL_JOBS_AT_ONCE = 8
"""Most external jobs that a worker runs at once, in addition to the job whose trials it trains; further ones wait for
other workers, or for the end of one. Each is a process of some 150 MB."""
BEATS_PER_LEASE = 4
"""Renewals of a lease in the time after which it would expire."""
GONE_WORKERS_KEPT = timedelta(days=7)
"""Time for which a worker that is not heard of is kept, by judgement: its machine may only sleep."""
CRASH_BACKOFF_SECONDS = 2.0
"""Wait after the second crash in a row; it doubles with each further one. After a single crash there is no wait."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to run a job: one claim by one worker."""

    job_id: str
    worker_id: str
    attempt: int

    def is_held_on(self, job: Job) -> bool:
        """True if this claim still holds the job."""
        held = (job.state, job.lease_worker_id, job.attempt)
        return held == (JobState.RUNNING, self.worker_id, self.attempt)


def register_worker(session: Session, *, host: str, pid: int, allows_code: bool = True, now: datetime) -> str:
    """Adds a worker; its id. `allows_code`: whether it takes jobs that name code of users."""
    worker = Worker(
        id=f"worker_{ULID()}", host=host, pid=pid, started_at=now, heartbeat_at=now, allows_code=allows_code
    )
    WorkerRepository(session).add(worker)
    return worker.id


def beat(session: Session, worker_id: str, *, lease_seconds: float, now: datetime) -> None:
    """Records that a worker is alive, and renews every lease it holds."""
    WorkerRepository(session).beat(worker_id, now)
    JobRepository(session).renew_leases(worker_id, now + timedelta(seconds=lease_seconds))


def end_worker(session: Session, worker_id: str, *, now: datetime) -> None:
    """Records that a worker ends, so that nobody waits for it from now on."""
    WorkerRepository(session).end(worker_id, now)


def end_killed_worker(session: Session, *, host: str, pid: int, since: datetime, now: datetime) -> None:
    """Records the end of a worker whose process was killed before it could do so itself: the process that started it
    knows at once, while others would count it as alive until it has been silent for long. Its runs notice and give its
    jobs back, or the leases expire.

    Args:
        since: when the process was started: an earlier one may have had the same pid.
    """
    WorkerRepository(session).end_process(host, pid, since=since, now=now)


def has_gone_workers(session: Session, *, now: datetime) -> bool:
    """True if `remove_gone_workers` would remove any; it locks nothing."""
    return WorkerRepository(session).has_gone(now - GONE_WORKERS_KEPT)


def remove_gone_workers(session: Session, *, now: datetime) -> int:
    """Removes workers that have not been heard of for long and hold no job; returns how many were removed."""
    return WorkerRepository(session).delete_gone(now - GONE_WORKERS_KEPT)


def claim_job(
    session: Session,
    worker_id: str,
    *,
    lease_seconds: float,
    now: datetime,
    running: Collection[str] = (),
    external: bool | None = None,
) -> Lease | None:
    """Claims the first job, by priority and age, that waits or was lost and that this worker may run, and queues its
    interrupted trials again; None: there is none.

    Args:
        running: the jobs that the worker runs. If it holds another one, the database died while it confirmed that
            claim: that job is returned again, because otherwise its lease would be renewed forever and the job would
            never run.
        external: whether clients train the job's trials; None: either.

    Raises:
        DatabaseOfAnotherVersion: another version may be able to read what this one cannot.
    """
    check_version(session)
    jobs = JobRepository(session)
    expires_at = now + timedelta(seconds=lease_seconds)
    leased = jobs.leased_to(worker_id, external=external)
    unheard = next(((job_id, attempt) for job_id, attempt in leased if job_id not in running), None)
    if unheard is not None:
        job_id, attempt = unheard
        jobs.renew_lease(job_id, expires_at)
        return Lease(job_id, worker_id, attempt)
    claimable = jobs.next_claimable_locked(
        now,
        resting=resting_projects(session),
        external=external,
        allows_code=WorkerRepository(session).allows_code(worker_id),
    )
    if claimable is None:
        return None
    try:
        with session.begin_nested():
            return _claimed(session, claimable, worker_id, expires_at=expires_at, now=now)
    except UNREADABLE_ROWS as error:
        _fail_unread(session, claimable, error, now=now)
        return None


def _claimed(session: Session, job_id: str, worker_id: str, *, expires_at: datetime, now: datetime) -> Lease | None:
    """The lease of a locked job that waits or was lost; None: it has failed. Raises: UNREADABLE_ROWS."""
    job = JobRepository(session).get_locked(job_id)
    was_lost = job.state is JobState.RUNNING
    # The worker of the last claim is gone, and so is its run: that counts as a crash of the run.
    if was_lost and put_back(session, job, now=now, crash="its worker was lost") is not JobState.QUEUED:
        return None
    move_job(session, job, JobState.RUNNING, now=now)
    job.not_before = None
    job.attempt += 1
    job.lease_worker_id = worker_id
    job.lease_expires_at = expires_at
    session.flush()
    _ = job.specification  # a run could not read it either
    return Lease(job.id, worker_id, job.attempt)


def _fail_unread(session: Session, job_id: str, error: Exception, *, now: datetime) -> None:
    """Ends a locked job whose rows cannot be read, so that the worker can continue with others."""
    logger.error("job %s cannot be read and fails", job_id, exc_info=error)
    failure = storable(f"its rows in the database cannot be read: {type(error).__name__}: {error}"[:MAX_FAILURE_LENGTH])
    JobRepository(session).fail_unread(job_id, failure=failure, now=now)
    data = {"state": JobState.FAILED.value, "failure": failure, "lost": None}
    EventRepository(session).add(job_id, "job.state", data, now)


def lock_leased_job(session: Session, lease: Lease) -> Job:
    """The leased job, locked for this transaction.

    Raises:
        LeaseLost: the job was cancelled, finished, deleted, or claimed by another worker.
    """
    try:
        job = JobRepository(session).get_locked(lease.job_id)
    except NotFound:
        raise LeaseLost(lease.job_id) from None
    if not lease.is_held_on(job):
        raise LeaseLost(lease.job_id)
    return job


def release_job(session: Session, lease: Lease, *, now: datetime, crash: str | None) -> JobState | None:
    """Gives a job back whose run has ended without finishing it; returns the job's new state, None: it was deleted.

    Args:
        crash: what killed the run, for a person; None: it ended because it was told to.

    Raises:
        DatabaseOfAnotherVersion: this version can no longer read the job; once the lease ends, another version can.
    """
    jobs = JobRepository(session)
    try:
        with session.begin_nested():
            return put_back(session, lock_leased_job(session, lease), now=now, crash=crash)
    except LeaseLost:
        pass
    except UNREADABLE_ROWS as error:
        check_version(session)
        if jobs.lock_claim(lease.job_id, lease.worker_id, lease.attempt):
            _fail_unread(session, lease.job_id, error, now=now)
    try:
        return jobs.state_of(lease.job_id)
    except NotFound:
        return None


def note_disk_use(session: Session, job_id: str, num_bytes: int) -> None:
    """Stores a job's disk use, in files and in the kept output of its ranks. Not fenced, because it does not matter to
    a run."""
    JobRepository(session).set_disk_bytes(job_id, num_bytes + OutputRepository(session).bytes_of_job(job_id))


def note_freed(session: Session, job_id: str, num_bytes: int, *, now: datetime) -> None:
    """Lowers an ended job's disk use, and makes open pages reload it."""
    jobs = JobRepository(session)
    try:
        job = jobs.get_locked(job_id)
    except NotFound:  # it was deleted
        return
    if job.disk_bytes is not None:
        job.disk_bytes = max(0, job.disk_bytes - num_bytes)
    record_change_event(session, job, now=now)


def put_back(session: Session, job: Job, *, now: datetime, crash: str | None) -> JobState:
    """Takes a running, locked job from its run, and puts it into the queue or into the requested state; returns the new
    state.

    `crash`: see `release_job`.
    """
    pauses = job.requested is JobRequest.PAUSE
    # A run that was asked to end and then had to be killed has not crashed.
    if crash is not None and job.requested is None:
        job.crashes += 1
        if job.crashes >= MAX_CRASHES:
            cancel_unfinished_trials(session, job, CancelCause.JOB_FAILED, now=now, detail="the job failed")
            failure = f"its run died {job.crashes} times in a row without getting any further; last: {crash}"
            move_job(session, job, JobState.FAILED, now=now, failure=failure)
            return job.state
        if job.crashes > 1:
            job.not_before = now + timedelta(seconds=CRASH_BACKOFF_SECONDS * 2 ** (job.crashes - 2))
    for trial in TrialRepository(session).page(job.id, states=(TrialState.QUEUED, TrialState.RUNNING)):
        if trial.requested is TrialRequest.STOP:
            stop(session, trial, now=now)
        elif trial.state is TrialState.RUNNING:
            detail = f"{'paused' if pauses else 'interrupted'}; goes on from its last checkpoint"
            move_trial(session, trial, TrialState.QUEUED, now=now, detail=detail)
    move_job(session, job, JobState.PAUSED if pauses else JobState.QUEUED, now=now, lost=crash)
    return job.state
