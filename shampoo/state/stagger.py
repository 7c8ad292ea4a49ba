"""The steps of the period at which factors are refreshed, so that every step does an equal share of the work.

Units (one factor of one block) are laid out in storage order, each with its cost d³, and the line is cut into f equal
stretches: the phase φ of a unit is the stretch in which its middle lies. So the units of a phase are consecutive rows
of a bucket, which one batched call refreshes, and no step's share exceeds the mean by more than a unit.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Line:
    """The stretch of the line that one bucket's units take up, or what one rank holds of it; costs are integers."""

    num_blocks: int
    side_costs: tuple[int, ...]
    """Cost of each side's unit in one block."""
    before: int
    """Cost of all units before the bucket."""
    total: int
    """Cost of all units of the group."""
    runs: tuple[tuple[int, int], ...] = ((0, 0),)
    """Runs of consecutive blocks here, if other ranks hold some of the bucket's: of each run the first block, as (block
    here, block of the whole bucket). So every unit has the phase that it has in a single process."""

    def part(self, runs: Sequence[tuple[int, int]], num_blocks: int) -> Line:
        """The line of some of the blocks, given as `runs`."""
        return dataclasses.replace(self, runs=tuple(runs), num_blocks=num_blocks)

    def phase(self, block: int, side: int, period: int) -> int:
        """φ of a unit, in [0, period)."""
        here, there = self.runs[bisect.bisect_right(self.runs, block, key=lambda run: run[0]) - 1]
        block += there - here
        middle = 2 * (self.before + block * sum(self.side_costs) + sum(self.side_costs[:side])) + self.side_costs[side]
        return 0 if self.total == 0 else min(period - 1, period * middle // (2 * self.total))

    def rows(self, side: int, phase: int, period: int) -> tuple[int, int]:
        """The blocks whose unit on this side has the phase: from the first number up to, without, the second."""
        return self._first(side, phase, period), self._first(side, phase + 1, period)

    def _first(self, side: int, phase: int, period: int) -> int:
        """The first block whose phase is at least this."""
        if phase <= 0:
            return 0
        if phase >= period:
            return self.num_blocks
        low, high = 0, self.num_blocks
        while low < high:
            block = (low + high) // 2
            if self.phase(block, side, period) >= phase:
                high = block
            else:
                low = block + 1
        return low


def lines(buckets: Sequence[tuple[int, Sequence[int]]]) -> list[Line]:
    """The lines of buckets given as (number of blocks, cost of each side's unit), in storage order."""
    totals = [num_blocks * sum(costs) for num_blocks, costs in buckets]
    return [
        Line(num_blocks=num_blocks, side_costs=tuple(costs), before=sum(totals[:index]), total=sum(totals))
        for index, (num_blocks, costs) in enumerate(buckets)
    ]
