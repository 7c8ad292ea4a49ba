"""Early stopping as pure decisions: asynchronous successive halving, Hyperband, the median rule, and none at all."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Protocol, get_args

from service.domain import Direction, PrunerName
from service.scheduler.policy.protocol import Decision


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


class Hyperband:
    """Hyperband (Li et al., arXiv:1603.06560) without waiting: every trial belongs to one of several ASHA brackets.

    Bracket `s` judges first at `min_steps * reduction_factor ** s`, the last one never; each has about
    `reduction_factor` times as many trials as the next, and costs as much. A trial's bracket follows from its number.
    """

    def __init__(self, *, min_steps: int, max_steps: int, reduction_factor: int = 3, direction: Direction) -> None:
        """Prepares the brackets; raises ValueError as `Asha` does."""
        first = Asha(min_steps=min_steps, max_steps=max_steps, reduction_factor=reduction_factor, direction=direction)
        starts = [*first.rungs, max_steps]
        self._brackets: list[Pruner] = [
            Asha(min_steps=start, max_steps=max_steps, reduction_factor=reduction_factor, direction=direction)
            for start in starts
        ]
        self._turns = _turns(len(starts), reduction_factor)

    def report(self, number: int, step: int, value: float) -> Decision:
        return self._brackets[self._turns[number % len(self._turns)]].report(number, step, value)


def _turns(num_brackets: int, reduction_factor: int) -> Sequence[int]:
    """The brackets of consecutive trials: `reduction_factor` times as many in each as in the next, well mixed."""
    shares = [reduction_factor ** min(num_brackets - 1 - bracket, 4) for bracket in range(num_brackets)]
    places = [((index + 0.5) / share, bracket) for bracket, share in enumerate(shares) for index in range(share)]
    return [bracket for _, bracket in sorted(places)]


class MedianRule:
    """The median rule (Golovin et al., Google Vizier, 2017): stops a trial whose best value so far is worse than the
    median of what the other trials had averaged up to the same step.

    It judges from `min_steps` on, once `NUM_STARTUP` other trials have come as far.
    """

    NUM_STARTUP = 5
    """Number of other trials that must have come as far: as many as Optuna's median pruner waits for."""

    def __init__(self, *, min_steps: int, direction: Direction) -> None:
        """Prepares the rule.

        Raises:
            ValueError: `min_steps` is not positive.
        """
        if min_steps < 1:
            raise ValueError(f"min_steps must be >= 1, got {min_steps}")
        self._min_steps = min_steps
        self._sign = 1.0 if direction is Direction.MINIMIZE else -1.0
        self._curves: dict[int, list[tuple[int, float]]] = {}

    def report(self, number: int, step: int, value: float) -> Decision:
        curve = self._curves.setdefault(number, [])
        cost = self._sign * value if math.isfinite(value) else math.inf
        if curve and step <= curve[-1][0]:
            return Decision.CONTINUE
        curve.append((step, cost))
        if step < self._min_steps:
            return Decision.CONTINUE
        if cost == math.inf:
            return Decision.STOP
        averages = [
            statistics.fmean(cost for at, cost in other if at <= step)
            for trial, other in self._curves.items()
            if trial != number and other[-1][0] >= step
        ]
        if len(averages) < self.NUM_STARTUP:
            return Decision.CONTINUE
        best = min(cost for _, cost in curve)
        return Decision.STOP if best > statistics.median(averages) else Decision.CONTINUE


def make_pruner(
    name: PrunerName, *, min_steps: int, max_steps: int, reduction_factor: int, direction: Direction
) -> Pruner:
    """The pruner `name` for trials of `max_steps` steps.

    Raises:
        ValueError: there is no such pruner, or a number is impossible.
    """
    match name:
        case "none":
            return NoPruner()
        case "asha":
            return Asha(
                min_steps=min_steps, max_steps=max_steps, reduction_factor=reduction_factor, direction=direction
            )
        case "hyperband":
            return Hyperband(
                min_steps=min_steps, max_steps=max_steps, reduction_factor=reduction_factor, direction=direction
            )
        case "median":
            return MedianRule(min_steps=min_steps, direction=direction)
        case "pbt":
            raise ValueError("'pbt' prunes and begins trials by turns: it is a search of its own, `population`")
    raise ValueError(f"unknown pruner {name!r} (known: {', '.join(get_args(PrunerName))})")
