"""Fair share: which of the jobs on one cluster gets the next rank group. Pure.

A higher priority goes first. Among equals the job with the smaller share of the cluster does, and the one that has
waited longer if those are equal, so that the smallest share is as large as can be (max-min fairness); a job's share is
that of the resource it has most of (dominant resource fairness).

A job that lacks a resource that another one's rank groups do not have, a GPU that one has no use for, is in nobody's
way. Resources that several jobs need are kept for the one whose turn it is until it has enough: large groups do not
starve.

Nothing is taken from a trial in training. A rank group changes hands when its trial ends or is paused, and among equals
only if that makes shares more even, because a job that keeps its rank group keeps its ranks warm. Where they cannot be
even, as of a cluster that holds one rank group, a job that has none gets its turn after `TURN_SECONDS`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

TURN_SECONDS = 30.0
"""Seconds that a job without any rank group waits before one of equal priority passes its own on, if it must."""
_TOLERANCE = 1e-9  # shares are sums of fractions


@dataclass(frozen=True, slots=True)
class Claim:
    """The share that a running job has of a cluster, and whether it wants more."""

    job_id: str
    project: str
    priority: int
    """Higher goes first."""
    num_groups: int
    """Rank groups it holds: one for each trial in training, and idle ones that it keeps warm."""
    group_share: float
    """The part of the cluster that one rank group takes, of the resource where that part is largest."""
    wants_since: datetime | None
    """The time since when it wants another rank group, as far as the cluster can hold one; None: it wants none."""
    coming: float = 0.0
    """The part of the cluster that was passed on to it a moment ago, and that it has not taken yet."""
    short_of: frozenset[str] = frozenset()
    """Names of the resources of which too little is free for another rank group."""
    resources: frozenset[str] = frozenset()
    """Names of the resources that its rank groups have."""

    @property
    def share(self) -> float:
        """The part of the cluster that it holds."""
        return self.num_groups * self.group_share


def turn_in_words(own: Claim, first: Claim) -> str:
    """The words for a job that has its turn before `own`, whose users read them: of one of another project they are not
    told which it is."""
    job = f"job {first.job_id}" if first.project == own.project else "a job of another project"
    return f"{job} (priority {first.priority}) goes first"


def goes_before(own: Claim, others: Iterable[Claim], *, has_idle: bool, now: datetime) -> Claim | None:
    """The job that is to get a rank group before `own`; None: `own` may take a free one, or go on with its idle one.

    Exactly one of the jobs that want a group and lack nothing may take a free one, so some job always goes on.

    Args:
        own: wants a rank group.
        others: the other running jobs of the cluster.
        has_idle: whether the question is to go on with a rank group of its own whose trial has ended.
    """
    # One that lacks what `own` does not have is not helped by leaving it the rest.
    waiting = [claim for claim in others if claim.wants_since is not None and claim.short_of <= own.resources]
    if has_idle:
        waiting = [claim for claim in waiting if _is_to_be_passed_to(own, claim, now)]
    else:
        waiting = [claim for claim in waiting if _rank(claim) < _rank(own)]
    return min(waiting, key=_rank, default=None)


def _rank(claim: Claim) -> tuple[int, float, datetime, str]:
    assert claim.wants_since is not None
    return -claim.priority, round(claim.share / _TOLERANCE) * _TOLERANCE, claim.wants_since, claim.job_id


def _is_to_be_passed_to(own: Claim, other: Claim, now: datetime) -> bool:
    """True if a job is to pass an idle rank group on to one that waits."""
    if other.coming + _TOLERANCE >= other.group_share:
        return False  # what it waits for is there
    if other.priority != own.priority:
        return other.priority > own.priority
    if other.share + other.coming + other.group_share <= own.share - own.group_share + _TOLERANCE:
        return True
    assert other.wants_since is not None
    return other.num_groups == 0 and (now - other.wants_since).total_seconds() >= TURN_SECONDS
