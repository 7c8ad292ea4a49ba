"""A run's share of a cluster that other jobs use, too: its changes are written to SQL, and it is checked before it
grows.

Placement groups are placed completely or not at all, so half-started jobs can never block each other; this module only
decides whose turn it is. If two runs check at the same moment, both may take a rank group. Then that of one waits in
Ray, counts as wanted, and makes other jobs release theirs.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ray import tune

from service.scheduler.cluster import ray_cluster
from service.scheduler.cluster.fair_share import Claim, goes_before, turn_in_words
from service.scheduler.cluster.group_size import GroupSize
from service.scheduler.cluster.ray_cluster import Node
from service.scheduler.cluster.ray_internals import TuneRankGroups
from service.scheduler.tune.journal import Journal
from service.scheduler.tune.messages import TuneAdapter
from service.scheduler.tune.run_end import RunEnded, Signals
from service.store.models import Job
from service.store.repositories import ClusterShareRepository, JobRepository
from service.store.session import Session
from service.use_cases import run

logger = logging.getLogger(__name__)

PLACING_SECONDS = 5.0
"""Seconds that a rank group which Ray was asked for may take to be placed before the job is said to wait for it."""


TAKING_SECONDS = 15.0
"""Seconds that a job may take to notice a rank group that was passed on to it, and have it, before it gets another."""


class Sharing(TuneAdapter, tune.Callback):
    """The share of a run: decides if it may take another rank group of its cluster, and says what it waits for."""

    def __init__(
        self,
        journal: Journal,
        signals: Signals,
        *,
        cluster: str,
        nodes: Sequence[Node],
        size: GroupSize,
        groups: TuneRankGroups,
        poll_seconds: float,
    ) -> None:
        """Prepares the share of one run, connected to its cluster.

        Args:
            cluster: the same text for all runs on it.
            nodes: its machines.
            groups: the rank groups of this run.
            poll_seconds: how often it looks again while it waits.
        """
        self._journal = journal
        self._signals = signals
        self._job_id = journal.lease.job_id
        self._cluster = cluster
        self._nodes = nodes
        self._size = size
        self._groups = groups
        self._poll_seconds = poll_seconds
        self._has_order = False
        """True if a trial is ready to start, for which there may be no rank group."""
        self._wants_since: datetime | None = None
        self._before: str | None = None
        """The words for the job that goes first."""
        self._waiting_for: str | None = None
        self._short_of: frozenset[str] = frozenset()
        self._passed: dict[str, _Passed] = {}
        """The rank groups that were passed on, by job."""
        self._num_held = 0
        self._next_ask = self._next_look = 0.0
        self._reported: run.ShareReport | None = None

    def may_take(self) -> bool:
        """True if a trial that is ready may start now; to be asked again at every turn until it may.

        Raises:
            RunEnded: the run has to end. Without any trial, Tune would ask forever and do nothing else.
        """
        self._has_order = True
        self._wants_since = self._wants_since or self._journal.now()
        if (self._groups.has_idle or time.monotonic() >= self._next_ask) and self._ask():
            self._has_order, self._before = False, None
            return True
        ending = self._signals.ending()
        if ending is not None:
            raise RunEnded(ending)
        self._groups.turn()
        self.look()
        return False

    def wants_none(self) -> None:
        """Takes in that no trial is ready to start: an idle rank group is given back if another job waits for one."""
        self._has_order, self._before = False, None
        if self._groups.has_idle and time.monotonic() >= self._next_ask:
            _, others = self._claims()
            if any(claim.wants_since is not None for claim in others):
                logger.info("job %s gives back a rank group that it has no trial for", self._job_id)
                self._groups.release_idle()

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Runs at every turn of Tune's loop, several times a second."""
        self.look()

    def look(self) -> None:
        """Tells SQL what has changed."""
        num_held, num_requested = self._groups.count()
        wants = self._has_order or num_requested > 0
        if not wants:
            self._wants_since = None
        elif self._wants_since is None or num_held > self._num_held:
            self._wants_since = self._journal.now()  # one that has just got a rank group waits anew for the next
        self._num_held = num_held
        if wants and time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + self._poll_seconds
            self._nodes = ray_cluster.living_nodes()
            waits = not num_held and (not num_requested or self._age(self._wants_since) >= PLACING_SECONDS)
            self._waiting_for = self._describe_wait() if waits else None
            self._short_of = ray_cluster.short_of(self._size)
        elif not wants or num_held:
            self._waiting_for = None
        # Nobody should wait for a group that the cluster cannot hold in addition to the job's own.
        fits = num_held < ray_cluster.max_parallel_trials(self._nodes, self._size)
        share = run.ShareReport(
            cluster=self._cluster,
            num_groups=num_held,
            group_share=ray_cluster.dominant_share(self._nodes, self._size),
            wants_since=self._wants_since if fits else None,
            waiting_for=self._waiting_for,
            short_of=self._short_of if wants else frozenset(),
        )
        if share != self._reported:
            lease = self._journal.lease
            self._journal.write(lambda session: run.report_share(session, lease, share, now=self._journal.now()))
            self._reported = share

    def _ask(self) -> bool:
        """True if the cluster and the other jobs leave room for a rank group; releases an idle group if another job
        should get it."""
        own_job, others = self._claims()
        if not others:
            return True
        now, has_idle = self._journal.now(), self._groups.has_idle
        share = ray_cluster.dominant_share(self._nodes, self._size)
        num_held, num_requested = self._groups.count()
        own = Claim(
            self._job_id,
            own_job.project,
            own_job.priority,
            num_held,
            share,
            self._wants_since or now,
            resources=frozenset(self._size.rank_bundle),
        )
        first = goes_before(own, others, has_idle=has_idle, now=now)
        self._before = None if first is None else turn_in_words(own, first)
        if has_idle:
            if first is not None:
                self._pass_to(first, share)
            return first is None
        if first is not None or num_requested:
            return False
        return ray_cluster.describe_wait(self._size) is None

    def _pass_to(self, other: Claim, share: float) -> None:
        logger.info("job %s passes a rank group on to job %s", self._job_id, other.job_id)
        self._groups.release_idle()
        self._passed[other.job_id] = _Passed(other.num_groups, other.coming + share, time.monotonic())

    def _coming_to(self, job_id: str, num_groups: int) -> float:
        """The part of the cluster that this run has passed on to a job which does not have it yet."""
        passed = self._passed.get(job_id)
        if passed is None or passed.num_groups != num_groups or time.monotonic() - passed.at > TAKING_SECONDS:
            return 0.0
        return passed.share

    def _claims(self) -> tuple[Job, list[Claim]]:
        """This job, and the claims of the other jobs on the cluster."""
        self._next_ask = time.monotonic() + self._poll_seconds

        def read(session: Session) -> tuple[Job, list[Claim]]:
            found = ClusterShareRepository(session).of_cluster(self._cluster, now=self._journal.now())
            claims = [
                Claim(
                    share.job_id,
                    project,
                    priority,
                    share.num_groups,
                    share.group_share,
                    share.wants_since,
                    self._coming_to(share.job_id, share.num_groups),
                    short_of=frozenset(share.short_of),
                )
                for share, project, priority in found
                if share.job_id != self._job_id
            ]
            return JobRepository(session).get(self._job_id), claims

        return self._journal.read(read)

    def _age(self, moment: datetime | None) -> float:
        return 0.0 if moment is None else (self._journal.now() - moment).total_seconds()

    def _describe_wait(self) -> str | None:
        if not ray_cluster.max_parallel_trials(self._nodes, self._size):
            return ray_cluster.describe_shortage(self._nodes, self._size)
        parts = [ray_cluster.describe_wait(self._size)]
        return "; ".join(part for part in [*parts, self._before] if part) or None


@dataclass(frozen=True, slots=True)
class _Passed:
    """A rank group that was passed on to a job."""

    num_groups: int
    """Groups that the job had then: when it has others, it has taken what was passed on, or something else."""
    share: float
    at: float
    """Time by the monotonic clock."""
