"""The parts of parameters that ranks own, and their places in each shard: pairs of views to copy between.

A rank owns all of a parameter, or runs of consecutive blocks of its regions. Runs of blocks are stepped in a flat
tensor that holds these blocks one after the other, by region.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from shampoo.distributed.topology import Replica
from shampoo.state.blocking import Region

Run = tuple[int, int]
"""First block of a region and last block + 1, in row-major order of its grid."""
Runs = tuple[tuple[Run, ...], ...]
"""The runs that a rank owns, by region."""


@dataclass(frozen=True, slots=True)
class Box:
    """Elements of an owner that are in one shard, as strided views of both."""

    shape: tuple[int, ...]
    owner_strides: tuple[int, ...]
    owner_offset: int
    shard_strides: tuple[int, ...]
    shard_offset: int

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    def of_owner(self, tensor: Tensor) -> Tensor:
        """The view of the contiguous tensor that the owner steps."""
        return tensor.as_strided(self.shape, self.owner_strides, tensor.storage_offset() + self.owner_offset)

    def of_shard(self, tensor: Tensor) -> Tensor:
        """The view of a shard, a contiguous tensor."""
        return tensor.as_strided(self.shape, self.shard_strides, tensor.storage_offset() + self.shard_offset)


@dataclass(frozen=True, slots=True)
class OwnedPart:
    """The part of a parameter that one rank owns."""

    param: Tensor
    owner_replica: Replica
    """The replica that the owner is part of."""
    owner_shard: int
    """The number of the shard that the owner holds."""
    numel: int
    placeholder: Tensor | None
    """The placeholder, on its owner: in the parameter's shape, or flat."""
    boxes: Callable[[int], list[Box]]
    """The boxes that it has in common with each shard."""

    @property
    def is_whole(self) -> bool:
        """True for all of a parameter, which is stepped in the parameter's shape."""
        return self.numel == self.param.numel()

    def numel_of(self, shard: int) -> int:
        """Elements of a shard that are part of it."""
        return sum(box.numel for box in self.boxes(shard))


def num_owned(regions: Sequence[Region], runs: Runs) -> int:
    """The number of elements in runs."""
    return sum(
        (stop - start) * math.prod(region.block)
        for region, of_region in zip(regions, runs, strict=True)
        for start, stop in of_region
    )


def boxes(regions: Sequence[Region], runs: Runs | None, span: tuple[int, int]) -> list[Box]:
    """The elements that an owner and a shard have in common.

    Args:
        regions: the regions of the whole parameter.
        runs: the owned blocks of them; None: the whole parameter, stepped in its own shape.
        span: first element of the shard and last element + 1; whole rows of the parameter.
    """
    first, last = span
    if runs is None:
        return [Box((last - first,), (1,), first, (1,), 0)] if last > first else []
    found: list[Box] = []
    at = 0
    for region, of_region in zip(regions, runs, strict=True):
        for start, stop in of_region:
            for part in sub_grids(region, start, stop):
                found.extend(_cut(part, at, span))
                at += part.num_blocks * math.prod(part.block)
    return found


def sub_grids(region: Region, start: int, stop: int) -> Iterator[Region]:
    """The blocks start, ..., stop − 1 of a region, in their order, as regions of its tensor."""
    yield from _sub_grids(region, 0, region.offset, start, stop)


def _sub_grids(region: Region, axis: int, offset: int, start: int, stop: int) -> Iterator[Region]:
    if start >= stop:
        return
    ones = (1,) * axis
    if axis == len(region.grid):
        yield Region(ones, region.block, region.strides, offset)
        return
    inner, stride = math.prod(region.grid[axis + 1 :]), region.strides[axis]
    first, last = start // inner, stop // inner
    if start % inner:
        end = min(stop, (first + 1) * inner)
        yield from _sub_grids(region, axis + 1, offset + first * stride, start - first * inner, end - first * inner)
        first += 1
    if first < last:
        grid = (*ones, last - first, *region.grid[axis + 1 :])
        yield Region(grid, region.block, region.strides, offset + first * stride)
    if stop % inner and first <= last:
        yield from _sub_grids(region, axis + 1, offset + last * stride, 0, stop - last * inner)


def _cut(region: Region, at: int, span: tuple[int, int]) -> Iterator[Box]:
    """The part of a region within a shard, given the position of its first block in the owner's tensor."""
    shape = region.grid + region.block
    inner = [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]
    if not region.block:
        # Elements one after the other.
        start, stop = max(region.offset, span[0]), min(region.offset + shape[0], span[1])
        if start < stop:
            yield Box((stop - start,), (1,), at + start - region.offset, (1,), start - span[0])
        return
    num_grid = len(region.grid)
    length, stride = region.block[0], region.strides[num_grid]
    top = region.offset // stride
    # Rows of the merged shape, counted from the region's first.
    low, high = span[0] // stride - top, span[1] // stride - top
    low, high = max(low, 0), min(high, region.grid[0] * length)
    # Each band is some rows of one block of the grid, or all rows of consecutive ones.
    bands: list[tuple[int, int, int, int]] = []
    first, last = -(-low // length), high // length
    if low < high:
        if first > last:
            bands.append((last, last + 1, low - last * length, high - last * length))
        else:
            if low % length:
                bands.append((first - 1, first, low % length, length))
            if first < last:
                bands.append((first, last, 0, length))
            if high % length:
                bands.append((last, last + 1, 0, high % length))
    for start, stop, row, end in bands:
        within = (stop - start, *shape[1:num_grid], end - row, *shape[num_grid + 1 :])
        owner_offset = at + start * inner[0] + row * inner[num_grid]
        shard_offset = region.offset + start * region.strides[0] + row * stride - span[0]
        kept = [dim for dim, extent in enumerate(within) if extent > 1]
        yield Box(
            tuple(within[dim] for dim in kept),
            tuple(inner[dim] for dim in kept),
            owner_offset,
            tuple(region.strides[dim] for dim in kept),
            shard_offset,
        )


def wire_views(wire: Tensor, found: Sequence[Box]) -> list[Tensor]:
    """The boxes, one after the other in a flat tensor, in their shapes."""
    starts = itertools.accumulate((box.numel for box in found), initial=0)
    return [wire[start : start + box.numel].view(box.shape) for box, start in zip(found, starts, strict=False)]
