"""The direction in which a parameter is better, the range that good trials had, and where trials diverged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.domain import Direction
from service.evidence.insights import DivergedBeyond, SafeRange, Trend
from service.scheduler.insights.compared import EndedTrial, Standings, rank_correlation

MIN_GOOD = 5
"""Completed trials that count as good, at least."""
GOOD_SHARE = 0.1
"""Share of the completed trials that is good, by judgement."""
MAX_GOOD = 50
"""Most trials that count as good by their share; of thousands, not all of a tenth are good."""
NEAR_BEST = 0.01
"""Trials whose value differs from the best by no more than this share of it are good, however many they are."""
MIN_BEYOND = 3
"""Least number of trials beyond a value; with fewer, nothing is said about it."""
MAX_PLACES = 40
"""Values that are tried as the one beyond which trials diverge."""
UNLIKELY = 0.005
"""Largest probability that chance puts so many diverged trials on one side; above it, nothing is said."""
CERTAIN = 2.58
"""Standard deviations of a rank correlation of unrelated values; beyond it, a direction is reported (1 of 100 by
chance)."""
CERTAIN_PART = 1.64
"""Standard deviations, likewise, for the parts below and above the best trials, each in only one direction (1 of
20)."""


@dataclass(frozen=True, slots=True)
class Direct:
    """The direction of a parameter."""

    correlation: float | None
    trend: Trend
    turns_at: int | None = None
    """The index of the trial with the median of the best trials' values."""


def direction_of(values: NDArray[np.float64], standing: Standings, num_best: int) -> Direct:
    """The direction of better standings: higher values, lower values, or values in between.

    Args:
        values: the values of the parameter.
        num_best: the number of trials that determine where it turns.
    """
    correlation = rank_correlation(values, standing)
    if correlation is None:
        return Direct(None, Trend.NONE)
    best = np.argsort(-standing, kind="stable")[:num_best]
    turning = best[np.argsort(values[best], kind="stable")[len(best) // 2]]
    below, above = values <= values[turning], values >= values[turning]
    rises = _certainty(values[below], standing[below]) > CERTAIN_PART
    falls = _certainty(values[above], standing[above]) < -CERTAIN_PART
    if rises and falls:
        return Direct(correlation, Trend.BETWEEN, int(turning))
    if abs(correlation) * math.sqrt(len(values) - 1) < CERTAIN:
        return Direct(correlation, Trend.NONE)
    return Direct(correlation, Trend.HIGHER if correlation > 0 else Trend.LOWER)


def _certainty(values: NDArray[np.float64], standing: Standings) -> float:
    """A rank correlation in standard deviations of one between unrelated values."""
    correlation = rank_correlation(values, standing)
    return 0.0 if correlation is None else correlation * math.sqrt(len(values) - 1)


def good_trials(trials: Sequence[EndedTrial], direction: Direction) -> list[EndedTrial]:
    """The best completed trials, and all that are nearly as good as the best one; the best first."""
    done = [(trial.value, trial) for trial in trials if trial.has_value and trial.value is not None]
    done.sort(key=lambda found: found[0], reverse=direction is Direction.MAXIMIZE)
    if not done:
        return []
    best = done[0][0]
    num_good = min(MAX_GOOD, max(MIN_GOOD, math.ceil(GOOD_SHARE * len(trials))))
    num_near = sum(abs(value - best) <= NEAR_BEST * abs(best) for value, _ in done)
    return [trial for _, trial in done[: max(num_good, num_near)]]


def safe_range(name: str, trials: Sequence[EndedTrial], good: Sequence[EndedTrial]) -> SafeRange | None:
    """The range of a numeric parameter among the good trials with it, and where others diverged; None: fewer than
    `MIN_GOOD` had it."""
    own = [trial for trial in good if name in trial.parameters]
    if len(own) < MIN_GOOD:
        return None
    had = [float(trial.parameters[name]) for trial in own]
    low, high = min(had), max(had)
    values = np.array([float(trial.parameters[name]) for trial in trials])
    diverged = np.array([trial.has_diverged for trial in trials])
    worst = own[-1].value
    assert worst is not None
    return SafeRange(
        low,
        high,
        len(own),
        worst,
        diverged_below=_diverged_above(-values, diverged, -low, sign=-1.0),
        diverged_above=_diverged_above(values, diverged, high),
    )


def _diverged_above(
    values: NDArray[np.float64], diverged: NDArray[np.bool_], start: float, *, sign: float = 1.0
) -> DivergedBeyond | None:
    """The value above `start` beyond which trials diverged clearly more often than elsewhere: the one least likely by
    chance.

    Args:
        sign: by which the values were multiplied.
    """
    places = np.unique(values[values > start])
    if len(places) > MAX_PLACES:
        places = places[np.linspace(0, len(places) - 1, MAX_PLACES).round().astype(int)]
    found: tuple[float, DivergedBeyond] | None = None
    for value in places:
        beyond = values >= value
        count, bad = int(beyond.sum()), int(diverged[beyond].sum())
        if count < MIN_BEYOND or not bad:
            continue
        chance = _chance_of(bad, count, int(diverged.sum()), len(values))
        if chance < UNLIKELY and (found is None or chance < found[0]):
            found = chance, DivergedBeyond(sign * float(value), count, bad)
    return found[1] if found else None


def _chance_of(bad: int, drawn: int, num_bad: int, num_all: int) -> float:
    """The probability that `bad` or more of `drawn` are among `num_bad` of `num_all`: a hypergeometric tail."""

    def ways(n: int, k: int) -> float:
        return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)

    whole = ways(num_all, drawn)
    return sum(
        math.exp(ways(num_bad, k) + ways(num_all - num_bad, drawn - k) - whole)
        for k in range(bad, min(drawn, num_bad) + 1)
        if drawn - k <= num_all - num_bad
    )
