"""The difference of two configs over the same seeds: an interval that few and unruly seeds do not fool. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from service.evidence.comparison import student_t

CONFIDENCE = 0.95
"""Confidence of the interval: the convention of most fields."""
MIN_SEEDS = 2
"""Fewest seeds with which a spread over seeds can be told."""
SURE_SEEDS = 6
"""Number of seeds from which on the interval holds whatever the noise: all of so many differences lie on the wrong side
of their median with probability 2^-6 = 1.6%; with five seeds 3.1%, with three 12.5%."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean difference and the interval that holds the true one with some confidence."""

    mean: float
    low: float
    high: float


def num_outliers(num_seeds: int) -> int:
    """The number of differences at either end that may lie beyond the interval of their median.

    Of n independent differences, at most r lie on one side of their median with probability P(Binomial(n, 1/2) <= r),
    which for the largest r is at most (1 - CONFIDENCE) / 2: 0 below nine seeds, 1 with nine, 2 with twelve (the sign
    test; Conover, Practical Nonparametric Statistics, section 3.4).
    """
    tail, found = 0.0, 0
    for num in range(num_seeds):
        tail += math.comb(num_seeds, num) / 2.0**num_seeds
        if tail > 0.5 * (1.0 - CONFIDENCE):
            break
        found = num
    return found


def interval_of(differences: Sequence[float]) -> Interval:
    """The interval of a difference by its value with each of two or more seeds.

    It is the smallest interval that contains two others. Student's paired interval is right for normal noise of any
    spread on either side; the sign test's interval of the median is right for any noise from `SURE_SEEDS` on. For
    configs that fail, jump between two outcomes or have heavy tails, the first alone calls a lucky draw a fact.

    The spread of two differences that are equal up to rounding says nothing: two accuracies over a hundred examples
    often agree by chance. Then the interval holds zero.
    """
    mean, num, ordered = statistics.fmean(differences), len(differences), sorted(differences)
    reach = student_t.quantile(0.5 * (1.0 + CONFIDENCE), num - 1) * statistics.stdev(differences) / math.sqrt(num)
    if num == 2 and math.isclose(*ordered, rel_tol=1e-9):
        reach = abs(mean)
    outliers = num_outliers(num)
    return Interval(mean, min(mean - reach, ordered[outliers]), max(mean + reach, ordered[-1 - outliers]))


def is_settled(differences: Sequence[float], *, num_planned: int, equal_within: float) -> bool:
    """True if no interval of `num_planned` differences, the known ones among them, could tell the configs apart.

    Then it holds zero and reaches beyond `equal_within`, so that the verdict is `undecided` whatever the other seeds
    bring. Stopping there never makes a verdict of another kind, and so no error.
    """
    allowed = num_outliers(num_planned)
    if len(differences) <= MIN_SEEDS:
        return False
    is_open = all(sum(sign * value > 0.0 for value in differences) > allowed for sign in (-1.0, 1.0))
    return is_open and sum(abs(value) > equal_within for value in differences) > 2 * allowed
