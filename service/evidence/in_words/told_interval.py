"""The intervals of an improvement and of a further seed, as far as they are told: no further than the metric can go."""

from __future__ import annotations

from service.domain import Direction
from service.evidence.types import ConfirmationResult, ConfirmedConfig, Evidence

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


def told_further(result: ConfirmationResult, config: ConfirmedConfig) -> tuple[float, float] | None:
    """Both ends of the interval that holds a config's value with a further seed, as people are told them; what is
    stored stays. None: the config has none.

    It is symmetric, too, and with few or noisy seeds reaches below 0. It is cut there if each value of the
    confirmation is positive: below, no training was.
    """
    if config.further_low is None or config.further_high is None:
        return None
    is_positive = min(_values_of(result)) > 0.0
    return max(config.further_low, 0.0) if is_positive else config.further_low, config.further_high


def _values(evidence: Evidence) -> list[float]:
    """The values of the metric that the evidence knows."""
    found: list[float | None] = [winner.value for winner in (evidence.best, evidence.baseline) if winner is not None]
    found += [value for compared in evidence.comparisons for value in (compared.value, compared.baseline_value)]
    confirmed = [] if evidence.confirmation is None else _values_of(evidence.confirmation)
    return [*(value for value in found if value is not None), *confirmed]


def _values_of(result: ConfirmationResult) -> list[float]:
    """The values that all configs of a confirmation were found with, and have with new seeds."""
    found = [value for config in result.configs for value in (config.found_value, *(r.value for r in config.results))]
    return [value for value in found if value is not None]
