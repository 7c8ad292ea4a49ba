"""The training seconds of a job's sides: if the job's time is limited, sides take turns by them."""

from __future__ import annotations

from collections.abc import Mapping

from service.domain import Side


class SideTimes:
    """Adds up the training time of each side's trials; for a running trial it expects the time that others have taken.

    It follows from the measurements alone, so that a restored policy gives turns as the one before.
    """

    def __init__(self, shares: Mapping[Side, int]) -> None:
        """Prepares it for sides whose shares of the time are as these numbers to each other."""
        self._shares = shares
        self._sides: dict[int, Side] = {}
        self._forks: set[int] = set()
        self._origins: dict[int, float] = {}
        self._reached: dict[int, float] = {}
        self._running: set[int] = set()

    def begin(self, number: int, side: Side, *, is_fork: bool = False) -> None:
        """Takes in a new trial of a side. The time up to the first measurement of a fork was its parent's."""
        self._sides[number] = side
        self._running.add(number)
        if is_fork:
            self._forks.add(number)

    def measured(self, number: int, seconds: float) -> None:
        """Takes in the training time of a trial up to a measurement, as the trial counts it."""
        self._origins.setdefault(number, seconds if number in self._forks else 0.0)
        self._reached[number] = max(seconds, self._reached.get(number, 0.0))

    def run(self, number: int) -> None:
        """Takes in that a trial goes on."""
        self._running.add(number)

    def stop(self, number: int) -> None:
        """Takes in that a trial has been paused or has ended."""
        self._running.discard(number)

    def share(self, side: Side) -> float:
        """The time that a side has had, running trials included, by its share of it: the least goes first."""
        expected = self._mean({side}) or self._mean(set(self._shares)) or 1.0
        own = [number for number, whose in self._sides.items() if whose == side]
        had = sum(max(self._own(number), expected if number in self._running else 0.0) for number in own)
        return had / max(1, self._shares[side])

    def _own(self, number: int) -> float:
        return self._reached.get(number, 0.0) - self._origins.get(number, 0.0)

    def _mean(self, sides: set[Side]) -> float:
        """Seconds of those that do not run, on average; 0: there are none."""
        known = [self._own(n) for n, side in self._sides.items() if side in sides and n not in self._running]
        return sum(known) / len(known) if known else 0.0
