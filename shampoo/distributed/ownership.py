"""The owners of an optimizer's parameters: from shapes, hyperparameters and layouts, the same on every rank.

Blocks with a preconditioner are assigned by their cost (`assignment`), and so are the elements of other parameters that
every rank holds. Elements of parameters that are cut into shards belong to the ranks that hold them, so they need not
be sent; if the mesh has replicas, each owns a part. Parameters below float32 whose rounding depends on the whole
parameter have one owner.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from shampoo.cost import Cost, cost_of_block, estimate, estimate_blocks
from shampoo.distributed.assignment import Items, Loads, Owned, assign
from shampoo.distributed.boxes import Run, Runs
from shampoo.distributed.layout import rows_of_shard
from shampoo.distributed.topology import RankArray
from shampoo.hyperparameters import DEFAULTS, Hyperparameters
from shampoo.state.blocking import Region, regions

Shape = tuple[int, ...]

_LEAST_SLICE = 256
"""The fewest elements for each replica with which dividing a shard is worth it: 1 KiB in float32, by judgement."""


@dataclass(frozen=True, slots=True)
class Member:
    """A parameter that needs owners."""

    group: int
    shape: Shape
    dtype: torch.dtype
    h: Hyperparameters
    ranks: RankArray
    device: str
    """Type of the device."""


Owners = dict[int, Runs | None]
"""The runs that each owner has of a parameter, None for all of it."""


def is_whole(member: Member) -> bool:
    """True if a parameter has one owner."""
    return member.h.low_precision_weights != "nearest" and member.dtype.itemsize < 4


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Consecutive items of a line: the blocks of one region of a member."""

    member: int
    """Its number."""
    region: int | None
    """The number of the region; None: the only item is the whole member."""
    count: int


@dataclass(slots=True)
class _Line:
    """Equal items of several members, stretch by stretch."""

    items: Items
    stretches: list[_Stretch] = field(default_factory=list)

    def append(self, stretch: _Stretch) -> None:
        self.stretches.append(stretch)
        self.items = replace(self.items, count=self.items.count + stretch.count)


def owners_of(members: Sequence[Member], loads: Loads) -> list[Owners]:
    """The owners of each parameter; adds what they own to `loads`."""
    found: list[Owners] = [{} for _ in members]
    owned: list[dict[int, dict[int, list[Run]]]] = [{} for _ in members]
    lines: dict[object, _Line] = {}
    for number, member in enumerate(members):
        if is_whole(member):
            key: object = ("whole", member.group, member.shape, member.dtype)
            if key not in lines:
                cost = _whole_cost(member)
                lines[key] = _Line(Items(0, cost.operations_per_step, cost.state_bytes, 1 << 62))
            lines[key].append(_Stretch(number, None, 1))
            continue
        for index, region in enumerate(_regions(member)):
            if region.block == () and member.ranks.is_cut:
                items = _items(member, region)
                for run, owner in _where_they_lie(member, number):
                    owned[number].setdefault(owner, {}).setdefault(index, []).append(run)
                    loads.add(owner, items, run[1] - run[0])
                continue
            key = (member.group, region.block, member.dtype, member.device)
            if key not in lines:
                lines[key] = _Line(_items(member, region))
            lines[key].append(_Stretch(number, index, region.num_blocks))
    assigned = assign([line.items for line in lines.values()], loads)
    for line, runs in zip(lines.values(), assigned, strict=True):
        for stretch, run, owner in _by_stretch(line.stretches, runs):
            if stretch.region is None:
                found[stretch.member][owner] = None
            else:
                owned[stretch.member].setdefault(owner, {}).setdefault(stretch.region, []).append(run)
    for number, by_owner in enumerate(owned):
        if by_owner:
            found[number] = _runs(members[number], by_owner)
        elif not found[number]:
            # It is empty, but some rank has to count its steps.
            found[number] = {0: None}
    return found


def add_loads(members: Sequence[Member], owners: Sequence[Owners], loads: Loads) -> None:
    """Adds the parts of parameters that owners have to `loads`."""
    for member, by_owner in zip(members, owners, strict=True):
        found = [(region, _items(member, region)) for region in _regions(member)]
        for owner, runs in by_owner.items():
            for index, (region, items) in enumerate(found):
                count = region.num_blocks if runs is None else sum(stop - start for start, stop in runs[index])
                loads.add(owner, items, count)


def _runs(member: Member, by_owner: Mapping[int, Mapping[int, Sequence[Run]]]) -> Owners:
    """Runs by region, with None for an owner that has everything."""
    all_regions = _regions(member)
    whole = tuple(((0, region.num_blocks),) for region in all_regions)
    found: Owners = {}
    for owner, by_region in sorted(by_owner.items()):
        runs = tuple(tuple(by_region.get(index, ())) for index in range(len(all_regions)))
        found[owner] = None if runs == whole else runs
    return found


def _regions(member: Member) -> list[Region]:
    return regions(member.shape, member.h)


def _items(member: Member, region: Region) -> Items:
    """A line for blocks like those of a region, with none in it yet."""
    operations, state_bytes = cost_of_block(region.block, member.h, dtype=member.dtype, device=member.device)
    numel = math.prod(region.block)
    # Items without state still have to be moved.
    return Items(0, operations, state_bytes or member.dtype.itemsize * numel, numel)


def _whole_cost(member: Member) -> Cost:
    config = {name: getattr(member.h, name) for name in DEFAULTS}
    return estimate([member.shape], dtype=member.dtype, device=member.device, **config)


def _by_stretch(stretches: Sequence[_Stretch], runs: Sequence[Owned]) -> Iterator[tuple[_Stretch, Run, int]]:
    """The runs of a line cut where its stretches end: stretch, run within it, owner."""
    begin, at = 0, 0
    for stretch in stretches:
        end = begin + stretch.count
        while at < len(runs):
            start, stop = max(runs[at].start, begin), min(runs[at].stop, end)
            if start < stop:
                yield stretch, (start - begin, stop - begin), runs[at].owner
            if runs[at].stop > end:
                break
            at += 1
        begin = end


def _where_they_lie(member: Member, number: int) -> Iterable[tuple[Run, int]]:
    """Elements of a sharded parameter with their owners: every replica owns a part of each shard, or one replica owns
    all of it."""
    row = math.prod(member.shape[1:])
    ranks = member.ranks
    for shard in range(ranks.num_shards):
        first, last = (x * row for x in rows_of_shard(member.shape[0], ranks.num_shards, shard))
        if first == last:
            continue
        if last - first < _LEAST_SLICE * ranks.num_replicas:
            yield (first, last), ranks.number_of(number % ranks.num_replicas, shard)
            continue
        cuts = [first + (last - first) * replica // ranks.num_replicas for replica in range(ranks.num_replicas + 1)]
        for replica in range(ranks.num_replicas):
            yield (cuts[replica], cuts[replica + 1]), ranks.number_of(replica, shard)


_TOLERANCE = 1.1
"""A smaller group of ranks is enough if none of them has more than this times the load of the busiest among all ranks:
a tenth more, by judgement, against sending to more ranks."""


def choose_group_size(members: Sequence[Member], world_size: int) -> int:
    """The number of ranks that should share parameters that every rank holds, a divisor of the world size.

    Beyond some number of ranks the largest blocks determine the time of a step, and more ranks only mean more to send.
    So it is the least number with which no rank has over a tenth more work or state than with all of them.
    """

    def most(num_ranks: int) -> tuple[float, float]:
        loads = Loads.none(num_ranks)
        owners_of(members, loads)
        return max(loads.operations), max(loads.state_bytes)

    least = most(world_size)
    sizes = (size for size in range(1, world_size) if world_size % size == 0)
    fit = (size for size in sizes if all(x <= _TOLERANCE * y for x, y in zip(most(size), least, strict=True)))
    return next(fit, world_size)


@dataclass(frozen=True, slots=True)
class LargestUnit:
    """The unit with the largest share of the state or of the work; a unit is owned by one rank."""

    block: Shape
    parameter: Shape
    share_of_state: float
    share_of_work: float

    def __str__(self) -> str:
        return (
            f"one block {self.block} of a parameter {self.parameter} has {self.share_of_state:.0%} of the state and "
            f"{self.share_of_work:.0%} of the work"
        )


def largest_unit(members: Sequence[Member]) -> LargestUnit:
    """The block, or the parameter with one owner, of the largest share."""
    whole = [_whole_cost(member) for member in members]
    state_bytes = sum(cost.state_bytes for cost in whole) or 1
    operations = sum(cost.operations_per_step for cost in whole) or 1.0
    found: list[LargestUnit] = []
    for member, cost in zip(members, whole, strict=True):
        units = [(member.shape, cost.operations_per_step, float(cost.state_bytes))]
        if not is_whole(member):
            each = [(region.block, _items(member, region)) for region in _regions(member)]
            units = [(block, items.operations, items.state_bytes) for block, items in each]
        found.extend(
            LargestUnit(block, member.shape, held / state_bytes, work / operations) for block, work, held in units
        )
    return max(found, key=lambda unit: max(unit.share_of_state, unit.share_of_work))


def cost_of_runs(shape: Shape, runs: Runs | None, h: Hyperparameters, *, dtype: torch.dtype, device: str) -> Cost:
    """The cost of some blocks of a parameter; None: all."""
    counts: dict[Shape, int] = {}
    found = regions(shape, h)
    for index, region in enumerate(found):
        num = region.num_blocks if runs is None else sum(stop - start for start, stop in runs[index])
        counts[region.block] = counts.get(region.block, 0) + num
    masters = math.prod(shape) if h.low_precision_weights == "master" else 0
    return estimate_blocks(counts, h, dtype=dtype, device=device, num_params=1, num_master_elements=masters)


def estimate_per_rank(
    shapes: Iterable[Sequence[int]],
    *,
    num_ranks: int,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    **config: Any,
) -> list[Cost]:
    """The cost to each rank of `Shampoo(params, **config)`, distributed="lossless", with parameters of these shapes in
    one group, whether they are replicated or sharded, if this many ranks share them; see `shampoo.cost.estimate`.
    Replicated parameters use fewer ranks if that makes no share a tenth larger, unless `num_ranks_per_group` says
    otherwise.

    Raises:
        ValueError: `num_ranks` is below 1, or as `estimate`.
    """
    if num_ranks < 1:
        raise ValueError(f"num_ranks must be at least 1, got {num_ranks}")
    given = [tuple(shape) for shape in shapes]
    estimate(given, dtype=dtype, device=device, **config)  # checks the arguments
    h = Hyperparameters(**{**DEFAULTS, **config})
    ranks = RankArray((num_ranks,), None)
    members = [Member(0, shape, dtype, h, ranks, device) for shape in given]
    return costs_per_rank(members, owners_of(members, Loads.none(num_ranks)), num_ranks)


def costs_per_rank(members: Sequence[Member], owners: Sequence[Owners], num_ranks: int) -> list[Cost]:
    """The cost of the parts that each rank owns of the parameters of one group.

    Raises:
        ValueError: there are no parameters.
    """
    if not members:
        raise ValueError("no parameters")
    h, dtype, device = members[0].h, members[0].dtype, members[0].device
    counts: list[dict[Shape, int]] = [{} for _ in range(num_ranks)]
    num_params = [0] * num_ranks
    masters = [0] * num_ranks
    for member, by_owner in zip(members, owners, strict=True):
        all_regions = _regions(member)
        for owner, runs in by_owner.items():
            num_params[owner] += 1
            for index, region in enumerate(all_regions):
                num = region.num_blocks if runs is None else sum(stop - start for start, stop in runs[index])
                counts[owner][region.block] = counts[owner].get(region.block, 0) + num
            if h.low_precision_weights == "master" and runs is None:
                masters[owner] += sum(region.num_blocks * math.prod(region.block) for region in all_regions)
    return [
        estimate_blocks(of_rank, h, dtype=dtype, device=device, num_params=num, num_master_elements=num_masters)
        for of_rank, num, num_masters in zip(counts, num_params, masters, strict=True)
    ]
