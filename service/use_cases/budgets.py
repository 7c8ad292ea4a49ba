"""The part of its budget that a job has spent. Pure functions of rows and numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from service.clock import SECONDS_PER_HOUR
from service.domain import Phase
from service.errors import InvalidInput
from service.evidence.in_words.wording import counted
from service.specification.job import Budget, JobSpecification
from service.specification.phases import allot, num_searched
from service.specification.price import Price
from service.store.models import Job


@dataclass(frozen=True, slots=True)
class Spent:
    """The amounts that a job has used up so far."""

    trials: Mapping[Phase, int]
    """Trials begun, by phase."""
    wall_clock_seconds: float
    """Time in state running."""
    device_hours: float
    cost: float | None
    """The cost of those device-hours; None: they have no price."""


def running_seconds(job: Job, now: datetime) -> float:
    """Seconds that a job has been running: time in the queue, paused, or after its end does not count.

    If a run's worker died, nothing counts after its lease expired.
    """
    if job.running_since is None:
        return job.running_seconds
    until = now if job.lease_expires_at is None else min(now, job.lease_expires_at)
    return job.running_seconds + max(0.0, (until - job.running_since).total_seconds())


def device_hours(specification: JobSpecification, spent_seconds: float) -> float:
    """The device-hours of trials that trained for `spent_seconds` in total: each rank is a device."""
    return spent_seconds * specification.resources.workers_per_trial / SECONDS_PER_HOUR


def cost_of(price: Price | None, hours: float) -> float | None:
    """The cost of so many device-hours; None: they have no price."""
    return None if price is None else price.per_device_hour * hours


def allowed_device_hours(budget: Budget, price: Price | None) -> float | None:
    """The device-hours that a budget allows, by their number and by their cost; None: any."""
    limits = [budget.device_hours]
    if budget.cost is not None and price is not None:
        limits.append(budget.cost / price.per_device_hour)
    return min((limit for limit in limits if limit is not None), default=None)


def check_cost(budget: Budget, price: Price | None) -> None:
    """Raises InvalidInput if a budget limits the cost of a job that has no price."""
    if budget.cost is not None and price is None:
        raise InvalidInput("budget.cost", "the service has no price for such ranks; limit budget.device_hours instead")


def why_spent(specification: JobSpecification, spent: Spent, *, num_trials: int | None) -> str | None:
    """The part of the budget that has to be raised before anything more can be tried; None: none.

    Args:
        num_trials: the number of the job's trials, as corrected at its end; None: it takes none that has not begun yet.
    """
    budget: Budget = specification.budget
    if budget.wall_clock_seconds is not None and spent.wall_clock_seconds >= budget.wall_clock_seconds:
        return _raise("wall_clock_seconds", budget.wall_clock_seconds, f"{spent.wall_clock_seconds:.1f}")
    if budget.device_hours is not None and spent.device_hours >= budget.device_hours:
        return _raise("device_hours", budget.device_hours, f"{spent.device_hours:.4g}")
    if budget.cost is not None and spent.cost is not None and spent.cost >= budget.cost:
        return _raise("cost", budget.cost, f"{spent.cost:.4g}")
    if num_trials is None:
        return None
    if all(spent.trials.get(phase, 0) >= num for phase, num in allot(specification).items()):
        # The confirmation's trials are added to those of the budget.
        searched = sum(num for phase, num in spent.trials.items() if phase is not Phase.CONFIRMATION)
        return _raise("num_trials", num_searched(specification), str(searched))
    if sum(spent.trials.values()) >= num_trials:
        return (
            f"raise budget.num_trials first: it ended with {counted(num_trials, 'trial')}, and nothing was left to try"
        )
    return None


def _raise(field: str, allowed: float, used: str) -> str:
    return f"raise budget.{field} first: {used} of {allowed:g} are spent"
