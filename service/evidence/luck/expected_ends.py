"""The objective that each trial of a search would have had at its end: known of the completed ones, expected of those
that were stopped.

The completed trials tell how one that was stopped after some examples would have gone on: a line through their values
after as many examples and their ends, by Bayesian regression (Bishop, Pattern Recognition and Machine Learning, section
3.3). Unless they say otherwise, a trial that was behind them stays behind by as much, and one that was ahead loses half
of its lead: a curve that fell early has less left to fall, and was stopped nevertheless. One whose curve is the
beginning of a completed trial's is the same training, as with a parameter that has no effect: its end is known.

An end lies around what is expected as Student's t does, as few completed trials tell how far ends lie from the line
(Gelman et al., Bayesian Data Analysis, section 14.2). That it lies beyond the best completed one is less probable than
so (`ODDS_OF_BEST`): a search stops what it expects least of, and below the best of many ends there is little room.
`tests.benchmarks.answers.expected_ends` says how well the ends are expected, and how often one that was stopped would
have been the best.
"""

from __future__ import annotations

import math
import random
import statistics
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from service.domain import Direction
from service.evidence.comparison import student_t
from service.evidence.luck.searched_side import TriedTrial

SLOPE_BEHIND = 1.0
"""Slope of the ends over the values before, without any evidence, where a trial was worse than the completed ones."""
SLOPE_AHEAD = 0.5
"""Slope where the trial was better. With more, trials that were stopped are too often said to be the best."""
SLOPE_DOUBT = 0.3
"""Standard deviation of what was expected. With less, three completed trials that differ are not heard; with more, two
that do are believed too much."""

ODDS_OF_BEST = 1 / 6
"""Odds of an end that is better than the best completed one, over those by Student's t alone. Chosen by the score of
the probabilities on all landscapes of the benchmark; without any one of them, 0.16 to 0.18 would have been."""


@dataclass(frozen=True, slots=True)
class ExpectedEnd:
    """The objective at a trial's end."""

    value: float
    doubt: float
    """The scale of Student's t around it; 0 of a trial that completed, and of its twins."""
    degrees: int = 1
    """Degrees of freedom of Student's t."""

    def drawn(self, best: float, direction: Direction, rng: random.Random) -> float:
        """A draw of it, given the best end of a completed trial."""
        sign = 1.0 if direction is Direction.MINIMIZE else -1.0
        while self.doubt:
            value = self.value + self.doubt * student_t.drawn(self.degrees, rng)
            if sign * value >= sign * best or rng.random() < ODDS_OF_BEST:
                return value
        return self.value


def expected_ends(trials: Sequence[TriedTrial], direction: Direction) -> dict[int, ExpectedEnd]:
    """The end of each trial that had a value and did not fail, by number; in the order of the trials.

    Without a completed trial, a trial is expected to stay as it was.
    """
    completed = [trial for trial in trials if trial.has_completed and trial.curve]
    sign = 1.0 if direction is Direction.MINIMIZE else -1.0
    lines: dict[int, _Lines] = {}
    found = {}
    for trial in trials:
        if trial.has_failed or not trial.curve:
            continue
        seen, value = trial.curve[-1]
        if trial.has_completed or not completed:
            found[trial.number] = ExpectedEnd(value, 0.0)
            continue
        if (twin := next((own for own in completed if _are_twins(trial, own)), None)) is not None:
            found[trial.number] = ExpectedEnd(twin.curve[-1][1], 0.0)
            continue
        if seen not in lines:
            pairs = [(_value_at(own, seen), own.curve[-1][1]) for own in completed]
            lines[seen] = _Lines(_line(pairs, SLOPE_AHEAD), _line(pairs, SLOPE_BEHIND))
        own_lines = lines[seen]
        is_behind = sign * value > sign * own_lines.behind.value
        found[trial.number] = (own_lines.behind if is_behind else own_lines.ahead).at(value)
    return found


def _are_twins(stopped: TriedTrial, completed: TriedTrial) -> bool:
    """True if they were one training while both ran: not if nothing had moved yet, as with an accuracy of chance."""
    has_moved = len({value for _, value in stopped.curve}) > 1
    return has_moved and list(completed.curve[: len(stopped.curve)]) == list(stopped.curve)


@dataclass(frozen=True, slots=True)
class _Line:
    """A regression of ends on values before."""

    value: float
    """The mean of the values before."""
    end: float
    """The mean of the ends."""
    slope: float
    slope_variance: float
    variance: float
    """The variance of an end around the line, and of the line at the mean."""
    degrees: int
    """Degrees of freedom of that variance."""

    def at(self, value: float) -> ExpectedEnd:
        away = value - self.value
        doubt = math.sqrt(self.variance + self.slope_variance * away * away)
        return ExpectedEnd(self.end + self.slope * away, doubt, self.degrees)


@dataclass(frozen=True, slots=True)
class _Lines:
    """The lines of one number of examples."""

    ahead: _Line
    behind: _Line


def _line(pairs: Sequence[tuple[float, float]], expected: float) -> _Line:
    """The line through values and ends; of one pair alone, an end may be off by as much as that value still changed.

    Args:
        expected: the slope without any evidence.
    """
    num = len(pairs)
    value, end = (statistics.fmean(own) for own in zip(*pairs, strict=True))
    away = [(own - value, own_end - end) for own, own_end in pairs]
    slope, slope_variance = expected, SLOPE_DOUBT**2
    if num == 1:
        return _Line(value, end, slope, slope_variance, 2.0 * (end - value) * (end - value), 1)
    around = _around(away, expected)
    if around > 0.0:
        slope_variance = 1.0 / (math.fsum(x * x for x, _ in away) / around + 1.0 / SLOPE_DOUBT**2)
        slope += slope_variance * math.fsum(x * (y - expected * x) for x, y in away) / around
    # A worse value is not followed by a better end, nor does the distance grow.
    slope = min(1.0, max(0.0, slope))
    return _Line(value, end, slope, slope_variance, _around(away, slope) * (1.0 + 1.0 / num), num - 1)


def _around(away: Sequence[tuple[float, float]], slope: float) -> float:
    """The variance of ends around a line of that slope through the mean."""
    return math.fsum((y - slope * x) ** 2 for x, y in away) / (len(away) - 1)


def _value_at(trial: TriedTrial, seen: int) -> float:
    """The objective after so many examples: between two measurements interpolated, beyond them the nearest."""
    above = bisect_left(trial.curve, seen, key=lambda measured: measured[0])
    if above == 0:
        return trial.curve[0][1]
    if above == len(trial.curve):
        return trial.curve[-1][1]
    (low, before), (high, after) = trial.curve[above - 1 : above + 1]
    return before + (after - before) * (seen - low) / (high - low)
