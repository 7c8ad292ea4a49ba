"""How even the ranks could be at best, and how even each step of a refresh period is."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy
from numpy.typing import NDArray

from shampoo.cost import cost_of_block, estimate_blocks
from shampoo.distributed.ownership import Member, Owners
from shampoo.hyperparameters import Hyperparameters
from shampoo.state.blocking import regions
from shampoo.state.factors import refresh_costs
from shampoo.state.stagger import lines

Block = tuple[int, ...]

_MOST_ON_A_RANK = 32
"""Blocks of a rank up to which their number is taken into account."""
_HALVINGS = 30


def over_mean(figures: Sequence[float]) -> float:
    """The largest over the mean; 1 if all are zero."""
    mean = sum(figures) / len(figures)
    return max(figures) / mean if mean else 1.0


def least_most(sizes: Mapping[float, int], num_ranks: int) -> float:
    """A bound below which no assignment of so many blocks of these sizes has the fullest rank.

    If no rank has more than M, it has at most k blocks of more than M/(k + 1); and so for weights that count how often
    this goes into a block, rounded down (the dual feasible functions u⁽ᵏ⁾ of Fekete and Schepers 2001).
    """
    present = {size: count for size, count in sizes.items() if size > 0}
    if not present:
        return 0.0

    def is_possible(most: float) -> bool:
        for k in range(1, _MOST_ON_A_RANK + 1):
            needed = 0.0
            for size, count in present.items():
                quotient = (k + 1) * size / most
                is_exact = abs(quotient - round(quotient)) < 1e-9
                needed += count * (quotient / (k + 1) if is_exact else math.floor(quotient) / k)
            if needed > num_ranks * (1 + 1e-9):
                return False
        return True

    low = max(max(present), sum(size * count for size, count in present.items()) / num_ranks)
    if is_possible(low):
        return low
    high = 2 * low
    while not is_possible(high):
        low, high = high, 2 * high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if is_possible(middle) else (middle, high)
    return high


def sizes_of(members: Sequence[Member]) -> tuple[Counter[float], Counter[float]]:
    """Operations and bytes of state of all blocks with a preconditioner, with how many blocks have as much."""
    operations, state_bytes = Counter[float](), Counter[float]()
    for key, count in Counter((member.shape, member.h, member.dtype, member.device) for member in members).items():
        shape, h, dtype, device = key
        for region in regions(shape, h):
            if region.block:
                work, held = cost_of_block(region.block, h, dtype=dtype, device=device)
                operations[work] += count * region.num_blocks
                state_bytes[held] += count * region.num_blocks
    return operations, state_bytes


def step_imbalance(
    members: Sequence[Member], owners: Sequence[Owners], num_ranks: int, *, stagger_refresh: bool
) -> float:
    """Over a refresh period: each step's most work of a rank, summed, over the mean work of the ranks."""
    by_group: dict[int, list[int]] = {}
    for number, member in enumerate(members):
        by_group.setdefault(member.group, []).append(number)
    periods = [members[numbers[0]].h.refresh_period for numbers in by_group.values()]
    work = numpy.zeros((num_ranks, math.lcm(*periods)))
    for numbers, period in zip(by_group.values(), periods, strict=True):
        ordinary, refreshes = _work_of_group(
            [members[number] for number in numbers], [owners[number] for number in numbers], num_ranks, period
        )
        if not stagger_refresh:
            refreshes = numpy.concatenate([refreshes.sum(axis=1, keepdims=True), 0 * refreshes[:, 1:]], axis=1)
        work += numpy.tile(ordinary[:, None] + refreshes, (1, work.shape[1] // period))
    total = work.sum()
    return float(work.max(axis=0).sum() * num_ranks / total) if total else 1.0


def _work_of_group(
    members: Sequence[Member], owners: Sequence[Owners], num_ranks: int, period: int
) -> tuple[NDArray[numpy.float64], NDArray[numpy.float64]]:
    """Operations of an ordinary step by rank, and of refreshes by rank and phase."""
    ordinary, refreshes = numpy.zeros(num_ranks), numpy.zeros(num_ranks * period)
    owner_of: dict[Block, list[NDArray[numpy.int64]]] = {}
    for member, by_owner in zip(members, owners, strict=True):
        for index, region in enumerate(regions(member.shape, member.h)):
            if not region.block:
                continue
            of_region = numpy.zeros(region.num_blocks, dtype=numpy.int64)
            for owner, runs in by_owner.items():
                for start, stop in ((0, region.num_blocks),) if runs is None else runs[index]:
                    of_region[start:stop] = owner
            owner_of.setdefault(region.block, []).append(of_region)
    h = members[0].h
    costs = {block: refresh_costs(block, h) for block in owner_of}
    buckets = [(sum(map(len, parts)), costs[block]) for block, parts in owner_of.items()]
    for (block, parts), line in zip(owner_of.items(), lines(buckets), strict=True):
        by_block = numpy.concatenate(parts)
        in_step, in_refresh = _operations(block, h, members[0])
        ordinary += in_step * numpy.bincount(by_block, minlength=num_ranks)
        of_block = sum(line.side_costs)
        for side, cost in enumerate(line.side_costs):
            if cost > 0:
                middles = (
                    2 * (line.before + numpy.arange(len(by_block)) * of_block + sum(line.side_costs[:side])) + cost
                )
                num_stretches = line.num_stretches(period)
                phases = numpy.minimum(num_stretches - 1, num_stretches * middles // (2 * line.total))
                phases = phases * period // num_stretches
                found = numpy.bincount(by_block * period + phases, minlength=num_ranks * period)
                refreshes += in_refresh * cost / of_block * found
    return ordinary, refreshes.reshape(num_ranks, period)


def _operations(block: Block, h: Hyperparameters, like: Member) -> tuple[int, int]:
    """Operations of a step and of a refresh of one block."""
    cost = estimate_blocks({block: 1}, h, dtype=like.dtype, device=like.device, num_params=1, num_master_elements=0)
    return cost.step_operations, cost.refresh_operations
