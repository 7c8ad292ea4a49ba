"""Early stopping as pure decisions: asynchronous successive halving, and none at all."""

from __future__ import annotations

import math
from typing import Protocol

from service.domain import Direction
from service.scheduler.policy import Decision


class Pruner(Protocol):
    """Decides from the measurements of all trials of a phase whether one of them is worth going on with."""

    def report(self, number: int, step: int, value: float) -> Decision:
        """Takes in one measurement of a trial, steps increasing. The decision is about that trial alone."""


class NoPruner:
    """Lets every trial run to its end."""

    def report(self, number: int, step: int, value: float) -> Decision:
        return Decision.CONTINUE


class Asha:
    """Asynchronous successive halving (Li et al., arXiv:1810.05934), the variant that stops instead of promoting.

    Rungs lie at `min_steps * reduction_factor ** k`, below `max_steps`. At its first measurement on or after a rung a
    trial is compared with every trial that was measured there before it, and goes on only if it belongs to the best
    `1 / reduction_factor` of them. While a rung has seen fewer than `reduction_factor` trials it stops none: there is
    nothing to judge by, and early values mislead (learning curves under a decaying schedule cross).

    What a rung remembers depends only on the measurements, not on their order, so replaying stored curves rebuilds it.
    A trial is judged once at each rung. If a process dies between storing a measurement and acting on it, that one
    decision is lost and the trial is next judged a rung later; judging it again could stop a trial that had passed.
    """

    def __init__(self, *, min_steps: int, max_steps: int, reduction_factor: int = 3, direction: Direction) -> None:
        if min_steps < 1 or max_steps < 1:
            raise ValueError(f"min_steps and max_steps must be >= 1, got {min_steps} and {max_steps}")
        if reduction_factor < 2:
            raise ValueError(f"reduction_factor must be >= 2, got {reduction_factor}")
        self._reduction_factor = reduction_factor
        self._sign = 1.0 if direction is Direction.MINIMIZE else -1.0
        self._costs: dict[int, dict[int, float]] = {}
        """By rung (its step), then by trial: the value there, turned so that smaller is better."""
        step = min_steps
        while step < max_steps:
            self._costs[step] = {}
            step *= reduction_factor

    @property
    def rungs(self) -> tuple[int, ...]:
        """Steps at which trials are judged, increasing."""
        return tuple(self._costs)

    def report(self, number: int, step: int, value: float) -> Decision:
        reached = [rung for rung in self._costs if rung <= step]
        # A value measured late is compared only at the highest rung passed: lower rungs would see a better trained
        # model than the others had there.
        if not reached or number in self._costs[reached[-1]]:
            return Decision.CONTINUE
        at_rung = self._costs[reached[-1]]
        cost = self._sign * value if math.isfinite(value) else math.inf
        at_rung[number] = cost
        if cost == math.inf:
            return Decision.STOP
        if len(at_rung) < self._reduction_factor:
            return Decision.CONTINUE
        num_better = sum(other < cost for other in at_rung.values())
        num_kept = math.ceil(len(at_rung) / self._reduction_factor)
        return Decision.CONTINUE if num_better < num_kept else Decision.STOP
