"""The assignment of blocks to ranks: by predicted cost, from shapes and hyperparameters, without communication.

Both the work of a step and the bytes of state should be even over the ranks. Refreshes are due for consecutive blocks
of a group at a time, so consecutive blocks go to different ranks, which then refresh at the same step. But blocks that
are too small to matter alone stay together, so that there are few pieces to copy and a rank's blocks are still stacked.
Elements come last: they have state but no matrix products, and fill the ranks up to equal bytes.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

_UNITS_PER_RANK = 8
"""A unit is at most this part of a rank's share, which limits the imbalance of one unit too many; by judgement."""
_UNITS_OF_ELEMENTS = 64
"""A unit of elements without a preconditioner is at most this part: they are cheap to cut, so it is smaller; by
judgement."""
_UNIT_ELEMENTS = 1 << 14
"""Blocks are not kept together beyond this number of elements, one block of 128x128; by judgement."""
_ALIGNMENT = 64
"""Elements without a preconditioner are cut at multiples of it, so that kernels see whole vector registers: four
registers of 512 bits hold 64 elements of float32."""


@dataclass(frozen=True, slots=True)
class Items:
    """Equal items to be owned, in a line: blocks, elements, or whole parameters."""

    count: int
    operations: float
    """Operations of the steps and refreshes of one item, in a mean step."""
    state_bytes: float
    """Bytes of one item's state."""
    numel: int
    """Elements of one item."""


@dataclass(frozen=True, slots=True)
class Owned:
    """Consecutive items that a rank owns."""

    start: int
    stop: int
    owner: int


@dataclass(slots=True)
class Loads:
    """The work and the bytes that the ranks own already."""

    operations: list[float] = field(default_factory=list)
    state_bytes: list[float] = field(default_factory=list)

    @classmethod
    def none(cls, num_ranks: int) -> Loads:
        return cls([0.0] * num_ranks, [0.0] * num_ranks)

    def copy(self) -> Loads:
        return Loads(list(self.operations), list(self.state_bytes))

    def add(self, rank: int, items: Items, count: int) -> None:
        self.operations[rank] += count * items.operations
        self.state_bytes[rank] += count * items.state_bytes


def assign(lines: Sequence[Items], loads: Loads) -> list[list[Owned]]:
    """The owners of each line, in order; adds them to `loads`.

    Greedy, the lines of the largest units first, each unit to the rank on which the larger of its two shares stays
    smallest.
    """
    num_ranks = len(loads.operations)
    total_operations = sum(loads.operations) + sum(line.count * line.operations for line in lines) or 1.0
    total_bytes = sum(loads.state_bytes) + sum(line.count * line.state_bytes for line in lines) or 1.0

    def share(operations: float, state_bytes: float) -> float:
        return max(operations / total_operations, state_bytes / total_bytes)

    def preference(rank: int, operations: float, state_bytes: float) -> tuple[float, float, int]:
        return (
            share(loads.operations[rank] + operations, loads.state_bytes[rank] + state_bytes),
            loads.operations[rank] / total_operations + loads.state_bytes[rank] / total_bytes,
            rank,
        )

    one = [share(line.operations, line.state_bytes) for line in lines]
    units = [_unit(line, part, num_ranks) for line, part in zip(lines, one, strict=True)]
    owned: list[list[Owned]] = [[] for _ in lines]
    for number in sorted(range(len(lines)), key=lambda number: (-units[number] * one[number], number)):
        line, unit = lines[number], units[number]
        if _is_divisible(line):
            continue
        operations, state_bytes = unit * line.operations, unit * line.state_bytes
        # Units are equal, so each changes only its rank's preference, and a queue is enough: without it, 70,000 units
        # over 4,096 ranks take a minute.
        queue = [preference(rank, operations, state_bytes) for rank in range(num_ranks)]
        heapq.heapify(queue)
        for start in range(0, line.count, unit):
            stop = min(line.count, start + unit)
            rank = queue[0][-1]
            _append(owned[number], Owned(start, stop, rank))
            loads.add(rank, line, stop - start)
            heapq.heapreplace(queue, preference(rank, operations, state_bytes))
    for number, line in enumerate(lines):
        if _is_divisible(line):
            owned[number] = _fill_up(line, units[number], loads)
    return owned


def _is_divisible(line: Items) -> bool:
    """True for elements without a preconditioner."""
    return line.numel == 1 and line.operations == 0


def _fill_up(line: Items, unit: int, loads: Loads) -> list[Owned]:
    """The owners of elements, in runs of whole units: ranks are filled up to the same bytes, as far as the elements
    last."""
    held = sorted(loads.state_bytes)
    # The common level of the emptiest ranks: of as many as are below it.
    below, level = 0.0, 0.0
    for num, most in enumerate([*held[1:], math.inf], start=1):
        below += held[num - 1]
        level = (below + line.count * line.state_bytes) / num
        if level <= most:
            break
    found: list[Owned] = []
    start = 0
    for rank, has in enumerate(loads.state_bytes):
        num_units = math.ceil((level - has) / (unit * line.state_bytes)) if line.state_bytes else line.count
        stop = min(line.count, start + max(0, num_units) * unit)
        if start < stop:
            found.append(Owned(start, stop, rank))
            start = stop
    # The rest, from rounding.
    if start < line.count:
        _append(found, Owned(start, line.count, found[-1].owner if found else 0))
    for run in found:
        loads.add(run.owner, line, run.stop - run.start)
    return found


def _unit(line: Items, share: float, num_ranks: int) -> int:
    """The number of a line's items that are owned together."""
    least = _UNITS_OF_ELEMENTS if line.numel == 1 else _UNITS_PER_RANK
    most = int(min(line.count, 1 / (least * num_ranks * share))) if share > 0 else line.count
    if line.numel == 1:
        return max(1, most // _ALIGNMENT) * _ALIGNMENT
    return max(1, min(most, _UNIT_ELEMENTS // max(1, line.numel)))


def _append(owned: list[Owned], more: Owned) -> None:
    if owned and owned[-1].owner == more.owner:
        owned[-1] = Owned(owned[-1].start, more.stop, more.owner)
    else:
        owned.append(more)
