"""The reasons for which jobs wait, and since when; for people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache

from service.access.quotas import why_resting
from service.clock import utc_text
from service.domain import JobState
from service.store.models import Job
from service.store.repositories import (
    ExternalRequestRepository,
    JobRepository,
    ProjectRepository,
    TrialLeaseRepository,
    TrialRepository,
    WorkerRepository,
)
from service.store.session import Session
from service.use_cases.leases import BEATS_PER_LEASE, EXTERNAL_JOBS_AT_ONCE

FIRST_MEASUREMENT = "its first measurement; ranks start, read the data and train up to it"
NEXT_MEASUREMENT = "its next measurement; its run begins anew: ranks start, and trials go on from their checkpoints"
WORKER_LOST = "its worker has fallen silent; the next free one takes it, and `shampoo-tuner worker` starts one"
OWN_WORKER_LOST = "its worker has fallen silent; the next free one takes it, and the service starts its own again"
OWN_WORKER_STARTS = "the service's worker starts"
NO_ROOM_FOR_WORKER = "its worker cannot write that it lives, and none goes on with it until there is room"
CODE_REFUSED = (
    "it names code, which no worker that is alive may run; `shampoo-tuner worker --allow-code` starts one that may"
)
CODE_WORKER_LOST = f"its worker has fallen silent; {CODE_REFUSED}"
ABOUT_TO = timedelta(seconds=10)
"""A free worker takes a job within this time after it began to wait: it looks twice a second, unless it is just
starting, or was killed and does not count as silent yet."""
FEW_BEATS = 2
"""Heartbeats that a worker may miss before viewers of its job are told: a single late beat means nothing."""
BETWEEN_TRIALS = timedelta(seconds=10)
"""A client that continues asks for its next trial within this time after its last message, by judgement: it may start a
program again."""
NO_CLIENT = "no client trains a trial of it; `shampoo-tuner agent` does"


@dataclass(frozen=True, slots=True)
class Waiting:
    """The reason why no training of a job is visible, although it is neither paused nor over."""

    since: datetime
    reason: str
    """Completes "waiting:", e.g. `2 jobs are before it` or `needs 4 GPUs, 3 free`."""


@dataclass(frozen=True, slots=True)
class Workers:
    """The workers, as a queued job sees them."""

    num_alive: int
    num_jobs: int
    """Jobs of its kind that they run."""
    last_heard_of: datetime | None
    """None: there has never been one."""
    num_refusing: int = 0
    """Other live workers that do not take the job, because it names code that they may not run."""
    jobs_at_once: int = 1
    """Jobs of its kind that each may run at once."""

    @property
    def why_full(self) -> str | None:
        """The reason why none of them takes a job now; None: one may."""
        if self.num_jobs < self.num_alive * self.jobs_at_once:
            return None
        if self.jobs_at_once == 1:
            return "the only worker is busy" if self.num_alive == 1 else f"all {self.num_alive} workers are busy"
        theirs = f"{self.jobs_at_once} jobs that clients train"
        if self.num_alive == 1:
            return f"the only worker runs {theirs}, as many as it may"
        return f"all {self.num_alive} workers run {theirs} each, as many as they may"


@dataclass(frozen=True, slots=True)
class WorkerFault:
    """The problem of a service's own worker, for users who see no live worker."""

    what: str
    """The part that is visible from outside, e.g. how often it has ended, and how."""
    last_line: str
    """The last line of its log, which may be about any project's jobs; empty: there is none."""
    log_place: str

    def told(self, *, with_log: bool) -> str:
        """The problem in words. `with_log`: with the line of the log, for users who may see the jobs of all
        projects."""
        last = f" (last in its log: {self.last_line})" if with_log and self.last_line else ""
        return f"{self.what}{last}; {self.log_place}"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The parts of the service, other than the database, that jobs may wait for."""

    why_no_room: Callable[[], str | None] = lambda: None
    """Gives the reason why the disks that workers write to have no room; None: they have room."""
    why_no_worker: Callable[[], str | None] | None = None
    """Gives the problem of the service's own worker, which the service starts, and restarts when it has ended, for
    users who see no live worker; None while it starts normally. Without this function, the service has no worker of its
    own."""

    @property
    def starts_worker(self) -> bool:
        """True if the service has a worker of its own."""
        return self.why_no_worker is not None


UNKNOWN = Surroundings()


def waiting_of(
    session: Session,
    jobs: Sequence[Job],
    *,
    now: datetime,
    silence_seconds: float,
    around: Surroundings = UNKNOWN,
) -> dict[str, Waiting | None]:
    """The reason why each job waits, by id; None: it does not wait. It takes a few more statements if a job is queued,
    or runs and has everything it needs.

    Args:
        silence_seconds: a worker that was silent for this long counts as gone.
        around: asked for room at most once, if a job is queued or its worker is silent.
    """
    around = replace(around, why_no_room=cache(around.why_no_room))

    @cache
    def workers(names_code: bool, external: bool) -> Workers:
        """The workers for jobs that name code or not, and whose trials are trained by clients or by workers."""
        return _workers(session, now=now, silence_seconds=silence_seconds, names_code=names_code, external=external)

    running = [job for job in jobs if job.state is JobState.RUNNING]
    queued = [job for job in jobs if job.state is JobState.QUEUED]
    found: dict[str, Waiting | None] = dict.fromkeys(job.id for job in jobs)
    found |= _of_running(running, around, workers, now=now)
    found |= _overdue(session, running, now=now, silence_seconds=silence_seconds)
    found |= _without_clients(session, [job for job in running if job.is_external], now=now)
    starting = [job for job in running if found[job.id] is None and not job.is_external]
    found |= _without_measurements(session, starting, now=now)
    found |= _of_queued(session, queued, around, workers, now=now)
    return found


def _of_running(
    running: Sequence[Job], around: Surroundings, workers: Callable[[bool, bool], Workers], *, now: datetime
) -> dict[str, Waiting]:
    """The running jobs that have lost their workers, or whose run reports what it waits for."""
    found = {}
    for job in running:
        if has_lost_worker(job, now):
            no_room = around.why_no_room()
            lost = OWN_WORKER_LOST if around.starts_worker else WORKER_LOST
            if job.names_code and not workers(True, False).num_alive and workers(False, False).num_alive:
                lost = CODE_WORKER_LOST
            lost = lost if no_room is None else f"{NO_ROOM_FOR_WORKER}: {no_room}"
            found[job.id] = Waiting(job.lease_expires_at or now, lost)
        elif job.waiting_for is not None:
            found[job.id] = Waiting(job.waiting_since or now, job.waiting_for)
    return found


def _without_clients(session: Session, served: Sequence[Job], *, now: datetime) -> dict[str, Waiting]:
    """The running jobs with trials for clients that no client trains now, or did a moment ago: between two trials a
    client has none."""
    if not served:
        return {}
    with_clients = TrialLeaseRepository(session).jobs_with_clients([job.id for job in served])
    without = [job for job in served if job.id not in with_clients]
    asked = ExternalRequestRepository(session).last_asked([job.id for job in without])
    found = {}
    for job in without:
        began = job.running_since or now
        last = asked.get(job.id, began)
        if last <= began or now - last > BETWEEN_TRIALS:
            found[job.id] = Waiting(max(began, last), NO_CLIENT)
    return found


def _without_measurements(session: Session, starting: Sequence[Job], *, now: datetime) -> dict[str, Waiting]:
    """The running jobs without a measured trial since they last began to run."""
    if not starting:
        return {}
    with_measurements = TrialRepository(session).measured_jobs([job.id for job in starting])
    found = {}
    for job in starting:
        if not with_measurements.get(job.id):
            reason = NEXT_MEASUREMENT if job.id in with_measurements else FIRST_MEASUREMENT
            found[job.id] = Waiting(job.running_since or now, reason)
    return found


def _of_queued(
    session: Session,
    queued: Sequence[Job],
    around: Surroundings,
    workers: Callable[[bool, bool], Workers],
    *,
    now: datetime,
) -> dict[str, Waiting]:
    """All queued jobs: each waits for its project's quota, else for room, else for a worker."""
    if not queued:
        return {}
    jobs = JobRepository(session)
    queues = [jobs.queued_ids(external=external) for external in {job.is_external for job in queued}]
    order = {job_id: index for queue in queues for index, job_id in enumerate(queue)}
    no_room = around.why_no_room()
    resting = {project: _why_resting(session, project) for project in {job.project for job in queued}}
    found = {}
    for job in queued:
        since, why = job.waiting_since or job.created_at, resting[job.project]
        if why is None and no_room is not None:  # before workers: on a full disk none writes that it is alive
            why = f"no job is begun until there is room: {no_room}"
        seen = workers(job.names_code, job.is_external)
        if why is None and around.why_no_worker is not None and not seen.num_alive and not seen.num_refusing:
            why = around.why_no_worker() or OWN_WORKER_STARTS
        if why is None:
            num_before = order.get(job.id, 0)  # missing: it was taken after it was read
            why = why_queued(num_before, seen, since=since, not_before=job.not_before, now=now)
        found[job.id] = Waiting(since, why)
    return found


def _why_resting(session: Session, name: str) -> str | None:
    project = ProjectRepository(session).find(name)
    return None if project is None else why_resting(session, project)


def _workers(session: Session, *, now: datetime, silence_seconds: float, names_code: bool, external: bool) -> Workers:
    """The workers for jobs that name code or not, and whose trials are trained by clients or by workers."""
    workers = WorkerRepository(session)
    since = now - timedelta(seconds=silence_seconds)
    num_alive = num_taking = workers.alive_since(since)
    if names_code:
        num_taking = workers.alive_since(since, allows_code=True)
    num_jobs = JobRepository(session).num_leased(now, external=external, to_code_workers=names_code)
    at_once = EXTERNAL_JOBS_AT_ONCE if external else 1
    return Workers(num_taking, num_jobs, workers.last_heartbeat(), num_alive - num_taking, at_once)


def is_overdue(heard_of: datetime, now: datetime, *, silence_seconds: float) -> bool:
    """True if a worker that was last heard of at this time has missed more than a few heartbeats."""
    return now - heard_of > timedelta(seconds=(FEW_BEATS * silence_seconds) / BEATS_PER_LEASE)


def _overdue(
    session: Session,
    running: Sequence[Job],
    *,
    now: datetime,
    silence_seconds: float,
) -> dict[str, Waiting]:
    """The running jobs whose worker is overdue, but has not lost them yet; takes one statement if a lease ends soon."""
    soon = now + timedelta(seconds=silence_seconds / 2)
    suspects = {
        job.id: (job.lease_worker_id, job.lease_expires_at)
        for job in running
        if job.lease_expires_at is not None and now <= job.lease_expires_at < soon
    }
    if not suspects:
        return {}
    heard = WorkerRepository(session).heartbeats({worker for worker, _ in suspects.values() if worker is not None})
    told = {}
    for job_id, (worker, expires_at) in suspects.items():
        at = heard.get(worker or "")
        if at is not None and is_overdue(at, now, silence_seconds=silence_seconds):
            reason = (
                f"its worker was last heard of at {utc_text(at)}; if it stays silent, another one may take the job at "
                f"{utc_text(expires_at)}"
            )
            told[job_id] = Waiting(at, reason)
    return told


def has_lost_worker(job: Job, now: datetime) -> bool:
    """True if the job is in state running, but its worker has let the lease expire: another one may take it."""
    if job.state is not JobState.RUNNING or job.is_external or job.lease_expires_at is None:
        return False
    return job.lease_expires_at < now


def why_queued(
    num_before: int, workers: Workers, *, since: datetime, not_before: datetime | None, now: datetime
) -> str:
    """The reason why a queued job waits.

    Args:
        num_before: queued jobs that are taken first.
        since: when it began to wait.
        not_before: when a job whose run died is tried again, if it is one.
    """
    if not workers.num_alive and workers.num_refusing:
        return CODE_REFUSED
    if not workers.num_alive:
        heard = workers.last_heard_of
        told = "has been started" if heard is None else f"is alive, the last was heard of at {utc_text(heard)}"
        return f"no worker {told}; `shampoo-tuner worker` starts one"
    if not_before is not None and not_before > now:
        return f"its run died; it is tried again at {utc_text(not_before)}"
    parts = []
    if num_before:
        parts.append(f"{num_before} jobs are before it" if num_before > 1 else "1 job is before it")
    if workers.why_full is not None:
        parts.append(workers.why_full)
    if parts:
        return ", and ".join(parts)
    if now - since <= ABOUT_TO or workers.last_heard_of is None:
        return "a worker is about to take it"
    return f"no worker has taken it yet; the last was heard of at {utc_text(workers.last_heard_of)}"
