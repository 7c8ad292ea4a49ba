"""Student's t distribution, in the standard library alone: the API loads no numerical package."""

from __future__ import annotations

import functools
import math
import random


@functools.cache
def quantile(probability: float, degrees_of_freedom: int) -> float:
    """The value below which Student's t lies with `probability`, to 12 digits.

    Bisection of the distribution function, which for whole degrees of freedom is a finite sum.

    Raises:
        ValueError: `probability` is not in (0, 1), or `degrees_of_freedom` is below 1.
    """
    if not 0.0 < probability < 1.0:
        raise ValueError(f"probability must be in (0, 1), got {probability}")
    if degrees_of_freedom < 1:
        raise ValueError(f"degrees_of_freedom must be at least 1, got {degrees_of_freedom}")
    if probability < 0.5:
        return -quantile(1.0 - probability, degrees_of_freedom)
    low, high = 0.0, 1.0
    while cumulative(high, degrees_of_freedom) < probability and math.isfinite(high):
        low, high = high, 2.0 * high
    for _ in range(200):
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        low, high = (middle, high) if cumulative(middle, degrees_of_freedom) < probability else (low, middle)
    return high


def cumulative(t: float, degrees_of_freedom: int) -> float:
    """P(T <= t): Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4."""
    angle = math.atan(t / math.sqrt(degrees_of_freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    is_odd = degrees_of_freedom % 2
    term = cosine if is_odd else 1.0
    total = 0.0
    for index in range(is_odd, degrees_of_freedom - 1, 2):
        total += term
        term *= cosine * cosine * (index + 1) / (index + 2)
    within = 2.0 / math.pi * (angle + sine * total) if is_odd else sine * total
    return min(1.0, max(0.0, 0.5 + 0.5 * within))  # which rounding may leave by 1e-16


def drawn(degrees_of_freedom: int, rng: random.Random) -> float:
    """A draw of Student's t: a normal one over the root of an independent mean square of normal ones."""
    return rng.gauss(0.0, 1.0) / math.sqrt(rng.gammavariate(0.5 * degrees_of_freedom, 2.0) / degrees_of_freedom)
