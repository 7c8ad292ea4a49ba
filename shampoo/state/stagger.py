"""The step of the period at which each factor is refreshed: the work is spread so that no step has much more than
others.

Units (one factor of one block) are laid out in storage order, each with its cost d³, and the line is cut into n ≤ f
equal stretches, whose refreshes are spread evenly over the period: a unit whose middle lies in the stretch i = 0, ...,
n − 1 has the phase φ = ⌊i f / n⌋. So the units of a phase are consecutive rows of a bucket, which one batched call
refreshes.

A large model has n = f. In a small one each step would have few units, and an odd number of them leaves a core idle. So
a stretch there costs as much as an even number of the largest units, at least `LEAST_TOGETHER`, and some steps refresh
nothing.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

LEAST_TOGETHER = 2
"""The least number of units of a step, which is a multiple of it: two cores take as long for two units as for one, and
a step takes longer the more units it refreshes. It is the same on every machine, because the times of refreshes change
the results of a training."""


@dataclass(frozen=True, slots=True)
class Line:
    """The stretch of the line that one bucket's units occupy, or the part of it that one rank holds; costs are
    integers."""

    num_blocks: int
    side_costs: tuple[int, ...]
    """Cost of each side's unit in one block."""
    before: int
    """Cost of all units before the bucket."""
    total: int
    """Cost of all units of the group."""
    largest: int
    """Cost of the group's largest unit."""
    runs: tuple[tuple[int, int], ...] = ((0, 0),)
    """Runs of consecutive blocks here, if other ranks hold some blocks of the bucket: the first block of each run, as
    (block here, block of the whole bucket). So every unit has the same phase as in a single process."""
    _phases: dict[tuple[int, int], list[int]] = field(default_factory=dict, init=False, repr=False, compare=False)
    """φ of all units of a side, in the order of the blocks, by side and period: a cache, because each step needs it."""

    def part(self, runs: Sequence[tuple[int, int]], num_blocks: int) -> Line:
        """The line of some of the blocks, given as `runs`."""
        return dataclasses.replace(self, runs=tuple(runs), num_blocks=num_blocks)

    def phase(self, block: int, side: int, period: int) -> int:
        """φ of a unit, in [0, period)."""
        here, there = self.runs[bisect.bisect_right(self.runs, block, key=lambda run: run[0]) - 1]
        block += there - here
        middle = 2 * (self.before + block * sum(self.side_costs) + sum(self.side_costs[:side])) + self.side_costs[side]
        if self.total == 0:
            return 0
        num_stretches = self.num_stretches(period)
        stretch = min(num_stretches - 1, num_stretches * middle // (2 * self.total))
        return stretch * period // num_stretches

    def num_stretches(self, period: int) -> int:
        """The largest number of steps of a period that refresh something; `total` must not be 0."""
        num_units = (2 * self.total + self.largest) // (2 * self.largest)  # large ones, to the nearest
        together = LEAST_TOGETHER * -(-num_units // (LEAST_TOGETHER * period))
        return min(period, -(-num_units // together))

    def rows(self, side: int, phase: int, period: int) -> tuple[int, int]:
        """The blocks whose unit on this side has the phase, as (first, last + 1)."""
        phases = self._phases.get((side, period))
        if phases is None:
            phases = [self.phase(block, side, period) for block in range(self.num_blocks)]
            self._phases[side, period] = phases
        return bisect.bisect_left(phases, phase), bisect.bisect_right(phases, phase)


def lines(buckets: Sequence[tuple[int, Sequence[int]]]) -> list[Line]:
    """The lines of buckets given as (number of blocks, cost of each side's unit), in storage order."""
    totals = [num_blocks * sum(costs) for num_blocks, costs in buckets]
    largest = max((cost for _, costs in buckets for cost in costs), default=0)
    return [
        Line(num_blocks, tuple(costs), before=sum(totals[:index]), total=sum(totals), largest=largest)
        for index, (num_blocks, costs) in enumerate(buckets)
    ]
