"""Numbers for charts: rounded to what a screen can show, curves thinned to what it can tell apart."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from service.api.figures.min_max import MinMax
from service.store.repositories.of_trials.measurements import CurvePoint

MAX_POINTS = 300
"""Most points of one curve."""
MAX_POINTS_TOGETHER = 6000
"""Most points of all curves of a chart: a browser is busy for as long as there are many, and nobody can tell them
apart."""
FEWEST_POINTS = 40
"""Points of one curve at least, however many curves there are."""


def points_of_each(num_curves: int) -> int:
    """The points that each of so many curves may have."""
    return min(MAX_POINTS, max(FEWEST_POINTS, MAX_POINTS_TOGETHER // max(1, num_curves)))


def rounded(value: float | None, digits: int = 5) -> float | int | None:
    """A value with so many significant digits, whole numbers as such; None: there is none, or it is not finite."""
    if value is None or not math.isfinite(value):
        return None
    short = float(f"{value:.{digits}g}")
    return int(short) if short.is_integer() and abs(short) < 10**9 else short


def rounded_all(values: Iterable[float | None], digits: int = 5) -> list[float | int | None]:
    return [rounded(value, digits) for value in values]


def thinned(points: Sequence[CurvePoint], limit: int = MAX_POINTS) -> Sequence[CurvePoint]:
    """A curve with at most `limit` points that shows all its peaks."""
    if len(points) <= limit:
        return points
    taken = MinMax[CurvePoint](first_step=points[0].step, last_step=points[-1].step, num_curves=1, max_points=limit)
    for point in points:
        taken.take(point.step, [point.value], point)
    return taken.points()
