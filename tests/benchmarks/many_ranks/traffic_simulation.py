"""Traffic of each of many ranks in a step, from shapes and owners alone.

It is what `shampoo.distributed.exchange` sends to other ranks, to the byte; other collectives than an all-to-all count
as a ring does them. Ranks are numbered as in an array of replicas x shards. How much an owner has in common with a
shard is counted by rows of the grid of blocks, for all owners and shards at once.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy
import torch
from numpy.typing import NDArray

from shampoo.distributed import placement
from shampoo.distributed.boxes import Runs
from shampoo.distributed.layout import rows_of_shard
from shampoo.distributed.ownership import Member, Owners
from shampoo.hyperparameters import Hyperparameters
from shampoo.state.blocking import Region, regions

Counts = NDArray[numpy.int64]
"""Numbers by replica and shard of a rank: (replicas, shards)."""
Shape = tuple[int, ...]

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_ALIGNMENT = 16
_REPORT_BYTES = 16
_MOST_ENTRIES = 1 << 22


@dataclass(frozen=True, slots=True)
class Moved:
    """Bytes of each rank, by its number."""

    sent_bytes: list[int]
    received_bytes: list[int]
    working_bytes: list[int]
    """Memory of a step beside the state: weights and gradients of what is owned in the two largest rounds, and as much
    again for buffers."""


@dataclass(slots=True)
class _Tally:
    """Parts of parameters in one exchange, and the bytes of their elements on the way there and back."""

    num_parts: Counts
    numel: Counts
    """Elements by owner."""
    of_owner: Counts
    """Bytes by owner, in all shards."""
    own: Counts
    """Bytes by owner, in its own shard."""
    of_shard: Counts
    """Bytes by holder, of all owners in its replica."""
    back_of_owner: Counts
    back_own: Counts
    back_of_shard: Counts

    @classmethod
    def empty(cls, shape: tuple[int, int]) -> _Tally:
        return cls(*(numpy.zeros(shape, dtype=numpy.int64) for _ in range(8)))

    def add(self, other: _Tally) -> None:
        for name in self.__slots__:
            getattr(self, name).__iadd__(getattr(other, name))


def traffic(members: Sequence[Member], owners: Sequence[Owners]) -> Moved:
    """The traffic of a step for parameters on the same ranks; at most one dimension of the array has replicas."""
    array = members[0].ranks
    shape = (array.num_replicas, array.num_shards)
    by_exchange: dict[tuple[int, str, bool], _Tally] = {}
    num_params = Counter[tuple[int, str, bool]]()
    by_round: dict[int, Counts] = {}
    lying: dict[object, _Tally] = {}
    for number, (member, by_owner, round_) in enumerate(zip(members, owners, _rounds(members), strict=True)):
        found = regions(member.shape, member.h)
        is_lying = array.is_cut and [region.block for region in found] == [()]
        # Equal ones have equal owners then.
        like = (member.shape, member.h, number % array.num_replicas) if is_lying else None
        tally = lying.get(like) if like is not None else None
        if tally is None:
            tally = _tally(member, by_owner, found, shape)
            if like is not None:
                lying[like] = tally
        kind = (round_, member.h.communication_dtype, member.h.reduce_gradients)
        by_exchange.setdefault(kind, _Tally.empty(shape)).add(tally)
        num_params[kind] += 1
        gathered = placement.gathered_bytes(math.prod(member.shape) * member.dtype.itemsize, array)
        held = 4 * tally.numel * member.dtype.itemsize + gathered
        by_round.setdefault(round_, numpy.zeros(shape, dtype=numpy.int64)).__iadd__(held)
    sent, received = numpy.zeros(shape, dtype=numpy.int64), numpy.zeros(shape, dtype=numpy.int64)
    for key, tally in by_exchange.items():
        _, communication_dtype, reduces = key
        has_units = _is_change(communication_dtype, members[0].dtype)
        out, into = _moved(tally, is_cut=array.is_cut, has_units=has_units)
        if reduces:
            # Gradients to the owners, padded to the one that has most; norms and whether there are gradients to all.
            out = into = out + (shape[0] - 1) * int(tally.numel.max()) * members[0].dtype.itemsize
            out = into = out + of_all_reduce(2 * 8 * num_params[key], shape[0])
        sent += out
        received += into
    held = numpy.sort(numpy.stack(list(by_round.values())), axis=0)[-2:].sum(axis=0)
    return Moved(sent.ravel().tolist(), received.ravel().tolist(), held.ravel().tolist())


def of_all_reduce(num_bytes: int, num_ranks: int) -> int:
    """Bytes that a rank sends to sum so many over a ring, and as many that it receives."""
    return 2 * (num_ranks - 1) * num_bytes // num_ranks


def _is_change(communication_dtype: str, dtype: torch.dtype) -> bool:
    """True if the weights' change comes back, in a lower precision."""
    return _DTYPES[communication_dtype].itemsize < min(torch.float32.itemsize, dtype.itemsize)


def _rounds(members: Sequence[Member]) -> Iterator[int]:
    """The round of each, as `placement` cuts them."""
    number, held = 0, 0.0
    for member in members:
        of_rank = placement.bytes_in_round(math.prod(member.shape) * member.dtype.itemsize, member.ranks)
        if held > 0 and held + of_rank > placement.ROUND_BYTES:
            number, held = number + 1, 0.0
        held += of_rank
        yield number


def _moved(tally: _Tally, *, is_cut: bool, has_units: bool) -> tuple[Counts, Counts]:
    """Bytes that each rank sends and receives in one exchange."""
    num_replicas, num_shards = tally.num_parts.shape
    sent, received = numpy.zeros_like(tally.numel), numpy.zeros_like(tally.numel)
    others = num_shards - 1
    # A norm of each part goes to its owner, and a unit of its change comes back if that is what is sent.
    norms = _aligned(8 * tally.num_parts)
    headers = (norms if has_units else 0) + numpy.full_like(norms, _REPORT_BYTES)
    if is_cut:
        sent += 2 * (tally.of_shard - tally.own) + norms.sum(axis=1, keepdims=True) - norms
        received += 2 * (tally.of_owner - tally.own) + others * norms
        sent += tally.back_of_owner - tally.back_own + others * headers
        received += tally.back_of_shard - tally.back_own + headers.sum(axis=1, keepdims=True) - headers
    if num_replicas > 1:
        longest = (tally.back_of_shard + headers.sum(axis=1, keepdims=True)).max(axis=0)
        sent += (num_replicas - 1) * longest
        received += (num_replicas - 1) * longest
    return sent, received


def _tally(member: Member, by_owner: Owners, found: Sequence[Region], shape: tuple[int, int]) -> _Tally:
    lower = _is_change(member.h.communication_dtype, member.dtype)
    back = _DTYPES[member.h.communication_dtype].itemsize if lower else member.dtype.itemsize
    numbers = numpy.fromiter(by_owner, dtype=numpy.int64)
    # At most so many shards at a time: a table lies on thousands, as parts of thousands of owners.
    at_once = max(1, _MOST_ENTRIES // shape[1])
    tally = _Tally.empty(shape)
    for begin in range(0, len(numbers), at_once):
        owners = numbers[begin : begin + at_once]
        replicas, shards = numpy.divmod(owners, shape[1])
        numel = _in_common(member, [by_owner[owner] for owner in owners.tolist()], found)
        there, returned = (_aligned(numel * size) for size in (member.dtype.itemsize, back))
        tally.num_parts[replicas, shards] += 1
        tally.numel[replicas, shards] += numel.sum(axis=1)
        tally.of_owner[replicas, shards] += there.sum(axis=1)
        tally.own[replicas, shards] += there[range(len(owners)), shards]
        tally.back_of_owner[replicas, shards] += returned.sum(axis=1)
        tally.back_own[replicas, shards] += returned[range(len(owners)), shards]
        for replica in numpy.unique(replicas):
            tally.of_shard[replica] += there[replicas == replica].sum(axis=0)
            tally.back_of_shard[replica] += returned[replicas == replica].sum(axis=0)
    return tally


def _in_common(member: Member, owned: Sequence[Runs | None], found: Sequence[Region]) -> Counts:
    """Elements that owners have of each shard, (owners, shards)."""
    num_shards = member.ranks.num_shards
    whole: Runs = tuple(((0, region.num_blocks),) for region in found)
    total = numpy.zeros((len(owned), num_shards), dtype=numpy.int64)
    for index, region in enumerate(found):
        runs = [
            (number, start, stop)
            for number, of_owner in enumerate(owned)
            for start, stop in (whole if of_owner is None else of_owner)[index]
        ]
        if not runs:
            continue
        if not region.block:
            edges = _edges(member.shape, num_shards)
            for number, start, stop in runs:
                total[number] += numpy.diff(numpy.clip(edges, start, stop))
            continue
        # Blocks by row of the grid, times what such a row has of each shard.
        counts = numpy.zeros((len(owned), region.grid[0]))
        inner = math.prod(region.grid[1:])
        for number, start, stop in runs:
            for row in range(start // inner, -(-stop // inner)):
                counts[number, row] += min(stop, (row + 1) * inner) - max(start, row * inner)
        of_rows = _rows_of_grid(member.shape, member.h, index, num_shards)
        total += numpy.rint(counts @ of_rows).astype(numpy.int64)
    return total


@lru_cache(maxsize=1 << 8)
def _rows_of_grid(shape: Shape, h: Hyperparameters, index: int, num_shards: int) -> NDArray[numpy.float64]:
    """Elements that a block in each row of a region's grid has of each shard, (rows, shards)."""
    region = regions(shape, h)[index]
    length, width = region.block[0], math.prod(region.block[1:])
    stride = region.strides[len(region.grid)]
    begin = region.offset // stride + length * numpy.arange(region.grid[0])[:, None]
    edges = _edges(shape, num_shards)[None, :] // stride
    return numpy.diff(numpy.clip(edges, begin, begin + length), axis=1).astype(numpy.float64) * width


@lru_cache(maxsize=1 << 10)
def _edges(shape: Shape, num_shards: int) -> Counts:
    """The first element of each shard, and the number of all."""
    if num_shards == 1:
        return numpy.array([0, math.prod(shape)], dtype=numpy.int64)
    row = math.prod(shape[1:])
    starts = [rows_of_shard(shape[0], num_shards, shard)[0] * row for shard in range(num_shards)]
    return numpy.array([*starts, math.prod(shape)], dtype=numpy.int64)


def _aligned(num_bytes: Counts) -> Counts:
    return -(-num_bytes // _ALIGNMENT) * _ALIGNMENT
