"""The rungs where trials pause on their way to the end, and their curves up to the first one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import takewhile
from typing import TypeAlias

from service.specification.search.pauses import PAUSE_SHARES, pause_at

Curve: TypeAlias = Sequence[tuple[int, float]]
"""Steps, rising, and the values measured there."""


class Rungs:
    """The steps at which the trials of one search are paused, and their end."""

    def __init__(self, *, max_steps: int, first: int | None, pauses: bool) -> None:
        """Puts the rungs at their shares of a trial; a trial is always measured there.

        Args:
            max_steps: steps of a whole trial.
            first: the first rung; None: that of `PAUSE_SHARES`.
            pauses: False: there are none.

        Raises:
            ValueError: the number of steps is not positive.
        """
        if max_steps < 1:
            raise ValueError(f"max_steps must be >= 1, got {max_steps}")
        rungs = {pause_at(share, num_steps=max_steps) for share in PAUSE_SHARES}
        if first is not None:
            rungs = {first, *(rung for rung in rungs if rung > 2 * first)}
        self.end = max_steps
        self._goals = [*(rung for rung in sorted(rungs) if pauses and rung < max_steps), max_steps]

    @property
    def first(self) -> int:
        """The first goal of a trial: the end, if there are no rungs."""
        return self._goals[0]

    def beyond(self, step: int) -> int:
        """The next rung after a step, or the end."""
        return next((goal for goal in self._goals if goal > step), self.end)

    def distance(self, step: int) -> float:
        """The distance of a step from the end, as the model counts: 1 at the first rung, 0 at the end."""
        if step >= self.end:
            return 0.0
        return math.log(self.end / step) / math.log(self.end / self.first)

    def at_first(self, curve: Curve) -> tuple[int, float] | None:
        """The measurement at the first rung, if the curve got there."""
        return next((point for point in curve if self.first <= point[0] < self.end), None)

    def until_first(self, curve: Curve) -> list[tuple[float, float]]:
        """Distances from the end and values up to the first rung."""
        early = takewhile(lambda point: point[0] < self.end, curve)
        found = []
        for step, value in early:
            found.append((self.distance(step), value))
            if step >= self.first:
                break
        return found
