"""Fair share: which of the jobs on one cluster gets the next rank group. Pure.

A higher priority goes first. Among equal priorities the job with the smaller share of the cluster goes first, and among
equal shares the one that has waited longer. So the smallest share is as large as possible (max-min fairness). A job's
share is that of the resource of which it has the largest part (dominant resource fairness).

A job that waits for a resource that another job's rank groups do not use, such as a GPU, does not block that other job.
Resources that several jobs need are kept for the job whose turn it is until it has enough, so large groups do not
starve.

Nothing is taken from a trial in training. A rank group passes to another job when its trial ends or is paused. Among
equal priorities this happens only if it makes shares more even, because a job that keeps its rank group keeps its ranks
warm. If shares cannot be even, as in a cluster with room for one rank group, a job that has none gets its turn after
`TURN_SECONDS`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

TURN_SECONDS = 30.0
"""Seconds that a job without any rank group waits before a job of equal priority has to pass on its own."""
_TOLERANCE = 1e-9  # shares are sums of fractions


@dataclass(frozen=True, slots=True)
class Claim:
    """The share of a cluster that a running job has, and whether it wants more."""

    job_id: str
    project: str
    priority: int
    """Higher goes first."""
    num_groups: int
    """Rank groups it holds: one for each trial in training, and idle ones that it keeps warm."""
    group_share: float
    """The part of the cluster that one rank group takes, for the resource of which it takes the largest part."""
    wants_since: datetime | None
    """The time since when it has wanted another rank group, if the cluster can hold one; None: it wants none."""
    coming: float = 0.0
    """The part of the cluster that was just passed on to it, and that it has not taken yet."""
    short_of: frozenset[str] = frozenset()
    """Names of the resources that have too little free for another rank group."""
    resources: frozenset[str] = frozenset()
    """Names of the resources that its rank groups have."""

    @property
    def share(self) -> float:
        """The part of the cluster that it holds."""
        return self.num_groups * self.group_share


def turn_in_words(own: Claim, first: Claim) -> str:
    """The words for a job that has its turn before `own`, for the users of `own`: they do not see the name of a job of
    another project."""
    job = f"job {first.job_id}" if first.project == own.project else "a job of another project"
    return f"{job} (priority {first.priority}) goes first"


def goes_before(own: Claim, others: Iterable[Claim], *, has_idle: bool, now: datetime) -> Claim | None:
    """The job that gets a rank group before `own`; None: `own` may take a free one, or keep its idle one.

    Of the jobs that want a group and lack no resource, exactly one may take a free one, so some job always proceeds.

    Args:
        own: wants a rank group.
        others: the other running jobs of the cluster.
        has_idle: whether it would keep a rank group of its own whose trial has ended.
    """
    # If another job lacks a resource that `own` does not have, leaving it the other resources does not help.
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
    """True if a job has to pass an idle rank group on to a waiting one."""
    if other.coming + _TOLERANCE >= other.group_share:
        return False  # the resources that it waits for are free
    if other.priority != own.priority:
        return other.priority > own.priority
    if other.share + other.coming + other.group_share <= own.share - own.group_share + _TOLERANCE:
        return True
    assert other.wants_since is not None
    return other.num_groups == 0 and (now - other.wants_since).total_seconds() >= TURN_SECONDS
