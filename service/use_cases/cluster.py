"""The cluster according to the database: who runs what now, who waits for what, what is free. Workers and runs write
the rows.

A caller sees the jobs of its own project; of other projects it only learns the number of jobs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby

from service.domain import TrialState
from service.store.models import ClusterShare, Job, Worker
from service.store.repositories import WorkerRepository
from service.store.repositories.cluster import ClusterRepository, QueuedJob
from service.store.session import Session
from service.use_cases.progress import JobProgress, TrialMemory, progress_of
from service.use_cases.waiting import UNKNOWN, Surroundings, Waiting, is_overdue, waiting_of
from trainers.identity.values import Environment

MAX_LISTED = 100
"""The most workers, and jobs of the queue, that are listed; the others are counted."""
SILENT_LISTED = timedelta(days=1)
"""A worker that was last heard of longer ago is not listed, unless it has a job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """The hardware and software that a job's newest measured trial trained on."""

    name: str
    """`CPU`, or the GPU as CUDA calls it."""
    versions: Mapping[str, str]
    """Versions of Python and of packages, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningJob:
    """A job that a worker has."""

    job: Job
    progress: JobProgress
    host: str | None
    """The host of its worker; None: nobody has its lease."""
    is_lost: bool
    """True if its worker has fallen silent: another one will take it."""
    num_trials: int
    """Number of its trials that are in training now."""
    num_ranks: int
    """Number of their ranks; 0: clients train its trials."""
    device: Device | None
    """None: none of its trials was measured yet."""
    waiting: Waiting | None


@dataclass(frozen=True, slots=True)
class Others:
    """Jobs of other projects, of which the caller only learns numbers."""

    num_jobs: int
    num_trials: int = 0
    """Number of their trials that are in training."""
    num_ranks: int = 0
    """Number of the ranks of those."""


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """A place in the queue, or consecutive places of other projects."""

    first: int
    last: int
    job: Job | None
    """None: the places belong to other projects."""
    waiting: Waiting | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSeen:
    """A worker, and the jobs that it has."""

    worker: Worker
    is_alive: bool
    is_overdue: bool
    """True if it is alive, but has been silent for some time."""
    jobs: Sequence[Job]
    """Its jobs that the caller sees."""
    num_others: int
    """Jobs of other projects that it has."""
    is_idle: bool
    """True if it would take a job now."""


@dataclass(frozen=True, slots=True)
class Share:
    """The part of a shared cluster that a job's rank groups have, or the part of all jobs of other projects."""

    job: Job | None
    """None: the jobs belong to other projects."""
    part: float
    num_groups: int
    wants_since: datetime | None
    short_of: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class SharedCluster:
    """A Ray cluster that the runs of several jobs may share."""

    name: str
    shares: Sequence[Share]
    """The shares in the order in which the next rank group is given: by priority, then the smaller part first."""

    @property
    def spare(self) -> float:
        """The part that no job has; each job counts by the resource of which it has the largest part."""
        return max(0.0, 1.0 - sum(share.part for share in self.shares))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """The whole cluster, as far as a caller may see it."""

    num_workers: int
    """Workers that are alive."""
    num_idle: int
    last_heard_of: datetime | None
    """Time of the last message of any worker; None: there has never been one."""
    workers: Sequence[WorkerSeen]
    """The workers, those that are alive first."""
    running: Sequence[RunningJob]
    running_others: Others
    queue: Sequence[QueuePlace]
    num_queued: int
    """Queued jobs of all projects."""
    num_unlisted: int
    """The caller's own queued jobs that are not listed."""
    shared: Sequence[SharedCluster]


def cluster_state(
    session: Session,
    *,
    sees: str | None,
    now: datetime,
    silence_seconds: float,
    memory: TrialMemory,
    around: Surroundings = UNKNOWN,
) -> ClusterState:
    """The cluster now.

    Args:
        sees: the project whose jobs are shown by name; None: all.
        silence_seconds: a worker that was silent for this long counts as gone.
        around: as `waiting_of` takes it.
    """
    found = ClusterRepository(session)
    alive_since = now - timedelta(seconds=silence_seconds)
    running = found.running_jobs()
    holders = {job.lease_worker_id for job in running if job.lease_worker_id is not None}
    workers = found.workers(heard_since=now - SILENT_LISTED, with_jobs=holders, limit=MAX_LISTED)
    progress = progress_of(session, running, now=now, memory=memory)
    own = [job for job in running if _is_seen(job, sees)]
    seen_workers = [_seen(worker, running, sees=sees, now=now, silence_seconds=silence_seconds) for worker in workers]
    seen_workers.sort(key=lambda seen: not seen.is_alive)
    num_alive = found.num_workers_alive(heard_since=alive_since)
    queued = found.queue()
    listed = [each.id for each in queued if sees in (None, each.project)][:MAX_LISTED]
    jobs = found.jobs(listed)
    waiting = waiting_of(session, [*own, *jobs.values()], now=now, silence_seconds=silence_seconds, around=around)
    devices = found.environments([job.id for job in own])
    hosts = {worker.id: worker for worker in workers}
    return ClusterState(
        num_workers=num_alive,
        num_idle=sum(worker.is_idle for worker in seen_workers),
        last_heard_of=WorkerRepository(session).last_heartbeat(),
        workers=seen_workers,
        running=[
            _running(
                job,
                progress[job.id],
                hosts.get(job.lease_worker_id or ""),
                devices.get(job.id),
                waiting[job.id],
                alive_since=alive_since,
            )
            for job in own
        ],
        running_others=_others([job for job in running if not _is_seen(job, sees)], progress),
        queue=places(queued, jobs, waiting, sees=sees),
        num_queued=len(queued),
        num_unlisted=sum(sees in (None, each.project) for each in queued) - len(listed),
        shared=shared_clusters(found.shares(now=now), sees=sees),
    )


def _is_seen(job: Job, sees: str | None) -> bool:
    return sees in (None, job.project)


def _running(
    job: Job,
    progress: JobProgress,
    worker: Worker | None,
    environment: Environment | None,
    waiting: Waiting | None,
    *,
    alive_since: datetime,
) -> RunningJob:
    num_trials = progress.trials.get(TrialState.RUNNING, 0)
    return RunningJob(
        job=job,
        progress=progress,
        host=None if worker is None else worker.host,
        is_lost=worker is None or worker.heartbeat_at < alive_since,
        num_trials=num_trials,
        num_ranks=_ranks(job, num_trials),
        device=None if environment is None else _device(environment),
        waiting=waiting,
    )


def _ranks(job: Job, num_trials: int) -> int:
    return 0 if job.is_external else num_trials * job.specification.resources.workers_per_trial


def _device(environment: Environment) -> Device:
    return Device(name=environment.device_name or environment.device.upper(), versions=environment.versions)


def _others(jobs: Sequence[Job], progress: Mapping[str, JobProgress]) -> Others:
    training = {job.id: progress[job.id].trials.get(TrialState.RUNNING, 0) for job in jobs}
    return Others(len(jobs), sum(training.values()), sum(_ranks(job, training[job.id]) for job in jobs))


def _seen(
    worker: Worker, running: Sequence[Job], *, sees: str | None, now: datetime, silence_seconds: float
) -> WorkerSeen:
    has = [job for job in running if job.lease_worker_id == worker.id]
    own = [job for job in has if _is_seen(job, sees)]
    is_alive = worker.heartbeat_at >= now - timedelta(seconds=silence_seconds) and worker.ended_at is None
    return WorkerSeen(
        worker=worker,
        is_alive=is_alive,
        is_overdue=is_alive and is_overdue(worker.heartbeat_at, now, silence_seconds=silence_seconds),
        jobs=own,
        num_others=len(has) - len(own),
        is_idle=is_alive and all(job.is_external for job in has),
    )


def places(
    queued: Sequence[QueuedJob],
    jobs: Mapping[str, Job],
    waiting: Mapping[str, Waiting | None],
    *,
    sees: str | None,
) -> list[QueuePlace]:
    """The queue as a caller sees it: its own jobs at their places, and the places of others between them.

    Args:
        jobs: the jobs that are listed, by id.
    """
    found: list[QueuePlace] = []
    for is_own, group in groupby(queued, key=lambda each: sees in (None, each.project)):
        in_row = list(group)
        if not is_own:
            found.append(QueuePlace(in_row[0].place, in_row[-1].place, None))
            continue
        listed = [each for each in in_row if each.id in jobs]
        found += [QueuePlace(each.place, each.place, jobs[each.id], waiting.get(each.id)) for each in listed]
        if len(listed) < len(in_row):
            break
    return found


def shared_clusters(shares: Sequence[tuple[ClusterShare, Job]], *, sees: str | None) -> list[SharedCluster]:
    """The clusters that running jobs share, each with what they have of it."""
    found = []
    for name, group in groupby(shares, key=lambda pair: pair[0].cluster):
        in_order = sorted(group, key=lambda pair: (-pair[1].priority, pair[0].num_groups * pair[0].group_share))
        own = [
            Share(job, share.num_groups * share.group_share, share.num_groups, share.wants_since, share.short_of)
            for share, job in in_order
            if _is_seen(job, sees)
        ]
        others = [share for share, job in in_order if not _is_seen(job, sees)]
        if others:
            part = sum(share.num_groups * share.group_share for share in others)
            own.append(Share(None, part, sum(share.num_groups for share in others), None))
        found.append(SharedCluster(name, own))
    return found
