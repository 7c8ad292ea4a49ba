"""The front of several objectives: trials that no other one betters in all. Pure functions of plain values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from service.domain import Direction, Objective, Phase

Name = TypeVar("Name")


@dataclass(frozen=True, slots=True)
class FrontPoint:
    """A trial that no other one betters: none is as good in every objective and better in one."""

    number: int
    """The number of the trial."""
    phase: Phase
    """The part of the job that it belongs to."""
    values: dict[str, float]
    """The values by metric, at the trial's last measurement."""


def dominates(ours: Sequence[float], theirs: Sequence[float], directions: Sequence[Direction]) -> bool:
    """True if `ours` is at least as good in every objective and better in one; values may be infinite, not NaN."""
    pairs = list(zip(ours, theirs, directions, strict=True))
    if any(direction.is_better(their, than=our) for our, their, direction in pairs):
        return False
    return any(direction.is_better(our, than=their) for our, their, direction in pairs)


def pareto_front(values: Mapping[Name, Sequence[float]], directions: Sequence[Direction]) -> list[Name]:
    """The names whose values no other ones dominate, sorted by the first objective, the best first.

    Names with a value that is not finite are left out; the first of equals is kept.

    Args:
        values: one value for each of `directions`, by name.
    """
    signs = [1.0 if direction is Direction.MINIMIZE else -1.0 for direction in directions]
    points = {
        name: tuple(sign * value for sign, value in zip(signs, own, strict=True))
        for name, own in values.items()
        if all(map(math.isfinite, own))
    }
    front: list[Name] = []
    # In lexicographic order nothing is dominated by what comes later.
    for name in sorted(points, key=points.__getitem__):
        point = points[name]
        if not any(all(a <= b for a, b in zip(points[kept], point, strict=True)) for kept in front):
            front.append(name)
    return front


def front_of(
    trials: Iterable[tuple[int, Phase, Mapping[str, float | None]]], objectives: Sequence[Objective]
) -> list[FrontPoint]:
    """The front of the completed trials of search and baseline together, sorted by the first objective.

    Args:
        trials: number, phase and last metrics of each; those that confirm, and those that lack an objective, are left
            out.
    """
    found = {}
    phases = {}
    for number, phase, metrics in trials:
        values = [metrics.get(objective.metric) for objective in objectives]
        if phase is not Phase.CONFIRMATION:
            found[number] = [math.nan if value is None else value for value in values]
            phases[number] = phase
    metrics_named = [objective.metric for objective in objectives]
    return [
        FrontPoint(number, phases[number], dict(zip(metrics_named, found[number], strict=True)))
        for number in pareto_front(found, [objective.direction for objective in objectives])
    ]
