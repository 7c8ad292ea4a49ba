"""Curves with fewer points that still show all their peaks: the lowest and the highest value of each stretch of steps.

The method is MinMax of Jugel, Jerzak, Hackenbroich and Markl, "M4: A Visualization-Oriented Time Series Data
Aggregation", VLDB 2014, over stretches of equal length, and the first and the last point besides. Several curves share
their points, as a measurement has the values of all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

Point = TypeVar("Point")


def fewest_points(num_curves: int) -> int:
    """The least that so many curves can be drawn with."""
    return 2 * num_curves + 2


class MinMax(Generic[Point]):
    """Takes points in order of steps, one after the other; it holds about as many as it gives in the end."""

    def __init__(self, *, first_step: int, last_step: int, num_curves: int, max_points: int) -> None:
        """Begins with nothing taken.

        Args:
            max_points: at least `fewest_points(num_curves)`.
        """
        self._first_step = first_step
        self._num_buckets = (max_points - 2) // (2 * num_curves)
        self._width = (last_step - first_step + 1) / self._num_buckets
        self._max_points = max_points
        self._all: list[tuple[int, Point]] | None = []
        """As long as they are not too many."""
        self._kept: dict[tuple[int, int, bool], tuple[float, int, Point]] = {}
        """(bucket, curve, whether it is the highest): value, step, point."""
        self._ends: list[tuple[int, Point]] = []

    def take(self, step: int, values: Iterable[float | None], point: Point) -> None:
        """Takes a point; None among its values, one for each curve: there is none, or it is not finite."""
        if self._all is not None:
            self._all.append((step, point))
            if len(self._all) > self._max_points:
                self._all = None
        self._ends = [*self._ends[:1], (step, point)]
        bucket = min(self._num_buckets - 1, int((step - self._first_step) / self._width))
        for curve, value in enumerate(values):
            if value is None:
                continue
            for is_highest in (False, True):
                key = bucket, curve, is_highest
                best = self._kept.get(key)
                if best is None or (value > best[0] if is_highest else value < best[0]):
                    self._kept[key] = value, step, point

    def points(self) -> Sequence[Point]:
        """The points that are left, in order of steps; all, if they were not too many."""
        if self._all is not None:
            return [point for _, point in self._all]
        found = {step: point for _, step, point in self._kept.values()} | dict(self._ends)
        return [found[step] for step in sorted(found)]
