"""The interval of an improvement, as far as it is told: no further than the metric can go."""

from __future__ import annotations

from service.domain import Direction
from service.evidence.types import Evidence

ALL_OF_IT = 1.0
"""All of the baseline's value: who gains it is at 0."""


def told_interval(evidence: Evidence, interval: tuple[float, float]) -> tuple[float, float]:
    """Both ends of an interval of `Evidence.improvement` as people are told them; what is stored stays.

    A loss or a time is never negative, so at most all of the baseline's value can be gained. The interval is symmetric
    and knows nothing of that: with few or noisy seeds it goes beyond, to values that no training has. It is cut there
    if the metric is minimised and each known value is positive. An accuracy can be more than twice the baseline's, and
    of a metric that has been 0 or negative there is no telling how far it goes: those stay whole.
    """
    low, high = interval
    if evidence.direction is not Direction.MINIMIZE or min(_values(evidence)) <= 0.0:
        return low, high
    return min(low, ALL_OF_IT), min(high, ALL_OF_IT)


def _values(evidence: Evidence) -> list[float]:
    """The values of the metric that the evidence knows."""
    found: list[float | None] = [winner.value for winner in (evidence.best, evidence.baseline) if winner is not None]
    found += [value for compared in evidence.comparisons for value in (compared.value, compared.baseline_value)]
    for config in [] if evidence.confirmation is None else evidence.confirmation.configs:
        found += [config.found_value, *(result.value for result in config.results)]
    return [value for value in found if value is not None]
