"""Optimizer state in stacked buckets: all equal-shaped blocks of a parameter group are in one tensor per quantity.

So a step is a few batched operations, whatever the number of layers. A parameter's regions are consecutive rows of one
or more buckets. A checkpoint holds these rows, so the order of a bucket is not part of its format. The elements of
parameters without a preconditioner are blocks of shape (): their bucket is one flat tensor.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from shampoo.hyperparameters import Hyperparameters
from shampoo.state.block_state import BlockState, Due, allocate, assemble, is_refreshed
from shampoo.state.blocking import Region, regions
from shampoo.state.factors import refresh_costs
from shampoo.state.stagger import Line, lines
from shampoo.state.timing import StepScalars

CHUNK_BYTES = {"cpu": 4 << 20}
"""Bytes of gradient to work on at a time, by type of device. On the CPU 4 MB stay in the cache from the gather to the
update."""
OTHER_CHUNK_BYTES = 384 << 20
"""Bytes of gradient at a time on other devices, where it only bounds the scratch memory: fewer chunks mean fewer
kernels, and GPT-2 is one chunk."""
_MIN_CHUNK_BLOCKS = 4
"""A chunk has at least this many blocks, however large they are; by judgement: products of fewer are hardly batched."""
_MIN_GROUP_CHUNKS = 8
"""On the CPU a group is cut into at least this many chunks, even if that makes them smaller, so that threads can share
them."""
_MIN_CHUNK_OPERATIONS = 150_000_000
"""But a chunk is not cut below this number of operations, about 6 ms of a thread: with smaller chunks, threads wait for
the interpreter (an MLP of 669,706 parameters took 0.96 of the time in chunks of 180 to 270 million, and 1.1 in chunks
of half the size)."""
READABLE_DEVICES = frozenset({"cpu"})
"""Types of device from which the host reads a number without waiting for a queue of work."""
LARGE_ELEMENTS = 1 << 20
"""Elements from which on a few passes over them take longer than launching the kernels that save these passes; by
judgement. Parameters of this size without a preconditioner have separate buckets."""
FEW_PIECES = 3
"""Pieces that need no more kernels one by one than together, because together they also have to be copied into one
tensor and back."""
_CACHE_LINE_ELEMENTS = 16
"""Elements of float32 in a cache line; as float64 they fill two lines."""


@dataclass(frozen=True, slots=True)
class BucketPiece:
    """Consecutive rows of a bucket that are one region of one parameter."""

    param: Tensor
    region: Region
    start: int
    """First row of the bucket."""
    is_dense: bool
    """True if the region's memory is in the order of the rows."""
    index: int
    """Position of the region in `regions` of its parameter."""
    number: int
    """Position of the region among those of its parameter, in the order of the group's buckets; the state is named by
    it."""
    shape: tuple[int, ...]
    """Shape of the whole parameter, for messages."""

    @property
    def stop(self) -> int:
        """Last row of the bucket that the piece has, + 1."""
        return self.start + self.region.num_blocks


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive pieces of a bucket, small enough to process together, and their state."""

    pieces: tuple[BucketPiece, ...]
    state: BlockState
    sizes: tuple[int, ...]
    """Rows of each piece."""
    start: int
    """First row of the bucket."""
    stop: int
    """Last row of the bucket, + 1."""

    @property
    def goes_by_piece(self) -> bool:
        """True if it is faster to work on each piece in place than to gather all of them, on a device whose kernels
        take time to launch."""
        elements = (self.stop - self.start) * math.prod(self.pieces[0].region.block)
        return elements >= (len(self.pieces) - FEW_PIECES) * LARGE_ELEMENTS

    def regions(self, tensors: Mapping[Tensor, Tensor]) -> list[Tensor]:
        """The pieces' regions of contiguous tensors, given by parameter: views of shape grid + block."""
        return [piece.region.view(tensors[piece.param]) for piece in self.pieces]

    def parts(self, X: Tensor) -> list[Tensor]:
        """X, (K, d_1, ..., d_k) over the chunk's rows, as the pieces' regions: views of shape grid + block."""
        return [
            rows.view(piece.region.grid + X.shape[1:]) for rows, piece in zip(self._rows(X), self.pieces, strict=True)
        ]

    def aligned(self, X: Tensor, tensors: Mapping[Tensor, Tensor]) -> list[tuple[list[Tensor], list[Tensor]]]:
        """X, (K, d_1, ..., d_k) over the chunk's rows, paired with the pieces' regions of contiguous tensors, given by
        parameter: lists of equal-shaped views. Dense regions come first and flat, so that one kernel handles them
        all."""
        dense: tuple[list[Tensor], list[Tensor]] = [], []
        strided: tuple[list[Tensor], list[Tensor]] = [], []
        for rows, piece in zip(self._rows(X), self.pieces, strict=True):
            tensor, region = tensors[piece.param], piece.region
            if piece.is_dense:
                dense[0].append(rows.view(-1))
                dense[1].append(region.flat(tensor))
            else:
                strided[0].append(rows.view(region.grid + region.block))
                strided[1].append(region.view(tensor))
        return [lists for lists in (dense, strided) if lists[0]]

    def _rows(self, X: Tensor) -> Sequence[Tensor]:
        """X, over the chunk's rows, by piece."""
        # In one call: in a model of many small layers, making slices takes longer than the work on them.
        return X.split_with_sizes(self.sizes)


class Bucket:
    """Equal-shaped blocks of parameters with the same hyperparameters, dtype and device."""

    def __init__(
        self,
        block: tuple[int, ...],
        pieces: Sequence[BucketPiece],
        h: Hyperparameters,
        line: Line,
        *,
        is_large: bool,
        group_elements: int,
    ) -> None:
        self.block = block
        self.is_large = is_large
        """See `LARGE_ELEMENTS`."""
        self.line = line
        self.pieces = pieces
        self.num_blocks = self.pieces[-1].stop
        self.like = pieces[0].param.new_empty((), dtype=state_dtype(pieces[0].param.dtype))
        self.tensors = allocate(self.num_blocks, block, h, self.like)
        self.state = assemble(self.tensors, block, h)
        self.all_refreshed = False
        """True once every unit has been refreshed; `look_at_refreshes` updates it."""
        self._max_blocks = _chunk_blocks(block, self.like, group_elements)
        self._parts = [part for piece in self.pieces for part in _parts(piece, self._max_blocks)]
        self._whole: list[Chunk] = []

    def chunks(self, steps: Mapping[Tensor, int]) -> Iterator[tuple[int, Chunk]]:
        """Step count and chunk to work on, given the step count of each parameter that takes part in this step."""
        counts = {steps.get(piece.param) for piece in self.pieces}
        if len(counts) > 1:
            yield from self._ragged(steps)
            return
        (step,) = counts
        if step is not None:
            # As in almost every step: the same chunks each time.
            if not self._whole:
                self._whole = [chunk for _, chunk in self._ragged(steps)]
            for chunk in self._whole:
                yield step, chunk

    def _ragged(self, steps: Mapping[Tensor, int]) -> Iterator[tuple[int, Chunk]]:
        pending: list[BucketPiece] = []
        for part in self._parts:
            step = steps.get(part.param)
            if pending and (
                step != steps[pending[0].param]  # also if a part skips this step, so the rows stay consecutive
                or part.stop - pending[0].start > self._max_blocks
            ):
                yield steps[pending[0].param], self._chunk(pending)
                pending = []
            if step is not None:
                pending.append(part)
        if pending:
            yield steps[pending[0].param], self._chunk(pending)

    def _chunk(self, pieces: Sequence[BucketPiece]) -> Chunk:
        start, stop = pieces[0].start, pieces[-1].stop
        sizes = tuple(piece.region.num_blocks for piece in pieces)
        return Chunk(tuple(pieces), self.state.rows(start, stop), sizes, start, stop)

    def due(self, chunk: Chunk, h: Hyperparameters, at: StepScalars) -> Due:
        """The units of a chunk to refresh, as (side, first row of the chunk, last row + 1)."""
        if not self.state.sides:
            return ()
        sides = [number for number, side in enumerate(self.state.sides) if side.refreshed is not None]
        if not (self.all_refreshed or is_refreshed(chunk.state)):
            begun = chunk.state.begun
            if begun is None or not bool(begun.any()):
                return _all_rows(chunk, sides) if at.has_started else ()
        if not h.stagger_refresh:
            return _all_rows(chunk, sides) if at.phase == 0 else ()
        period = h.refresh_period
        due: list[tuple[int, int, int]] = []
        for number in sides:
            start, stop = self.line.rows(number, at.phase, period)
            if start < chunk.stop and stop > chunk.start and start < stop:
                due.append((number, max(start, chunk.start) - chunk.start, min(stop, chunk.stop) - chunk.start))
        return tuple(due)

    def look_at_refreshes(self) -> None:
        """Updates `all_refreshed`."""
        self.all_refreshed = is_refreshed(self.state)


@dataclass(frozen=True, slots=True)
class Stepped:
    """A parameter of a group, and the part of it that is stepped here."""

    shape: tuple[int, ...]
    """Shape of the whole parameter, which determines the group's order."""
    like: Tensor
    """Has its dtype and device."""
    tensor: Tensor | None
    """The tensor that is stepped: of this shape, or, with `runs`, flat; None: nothing."""
    runs: tuple[tuple[tuple[int, int], ...], ...] | None = None
    """For each region, the blocks [first, last + 1) that are contiguous in the tensor."""


def is_large(region: Region) -> bool:
    """True for a parameter without a preconditioner of `LARGE_ELEMENTS` or more."""
    return not region.block and region.num_blocks >= LARGE_ELEMENTS


def make_buckets(params: Sequence[Stepped], h: Hyperparameters) -> list[Bucket]:
    """Buckets with fresh state for what is stepped here of the parameters of one group, in order of first appearance.

    Parts that are stepped elsewhere are not in them, and only affect the steps at which the rest is refreshed.
    """
    buckets: list[Bucket] = []
    group_elements = sum(math.prod(param.shape) for param in params)
    num_regions: dict[int, int] = {}
    for (block, large, *_), placed, line in _placed(params, h):
        pieces: list[BucketPiece] = []
        runs: list[tuple[int, int]] = []
        stop = all_stop = 0
        for param, index, region in placed:
            number = num_regions.get(id(param), 0)
            num_regions[id(param)] = number + 1
            for first, last in _runs_here(param, index, region):
                if not runs or runs[-1][1] - runs[-1][0] != all_stop + first - stop:
                    runs.append((stop, all_stop + first))
                stop += last - first
            count = stop - (pieces[-1].stop if pieces else 0)
            if count > 0 and param.tensor is not None:
                here = region
                if param.runs is not None:
                    # By region: earlier regions of the parameter come first in the tensor.
                    here = _stacked(block, count, _elements_before(param, index, h))
                pieces.append(BucketPiece(param.tensor, here, stop - count, here.is_dense, index, number, param.shape))
            all_stop += region.num_blocks
        if pieces:
            part = line.part(runs, stop)
            buckets.append(Bucket(block, pieces, h, part, is_large=large, group_elements=group_elements))
    return buckets


_Key: TypeAlias = tuple[tuple[int, ...], bool, torch.dtype, torch.device]
"""The common properties of the blocks of a bucket: shape, whether they are of a large parameter, dtype and device."""


def _placed(
    params: Sequence[Stepped], h: Hyperparameters
) -> list[tuple[_Key, list[tuple[Stepped, int, Region]], Line]]:
    """The regions of parameters by their common properties, each with its position among the regions of its parameter,
    and the lines of all of them."""
    members: dict[_Key, list[tuple[Stepped, int, Region]]] = {}
    for param in params:
        for index, region in enumerate(regions(param.shape, h)):
            key = (region.block, is_large(region), param.like.dtype, param.like.device)
            members.setdefault(key, []).append((param, index, region))
    sizes = [
        (sum(region.num_blocks for _, _, region in placed), refresh_costs(placed[0][2].block, h))
        for placed in members.values()
    ]
    return [(key, placed, line) for (key, placed), line in zip(members.items(), lines(sizes), strict=True)]


def line_up(buckets: Sequence[Bucket], params: Sequence[Stepped], h: Hyperparameters) -> None:
    """Gives units in buckets that were made at different times the phases that they would have if all had been made
    together.

    Args:
        params: all parameters of the buckets, as `make_buckets` takes them.
    """
    for _, placed, line in _placed(params, h):
        start_of: dict[tuple[Tensor, int], int] = {}
        at = 0
        for param, index, region in placed:
            if param.tensor is not None:
                start_of[param.tensor, index] = at
            at += region.num_blocks
        runs_of = {(param.tensor, index): _runs_here(param, index, region) for param, index, region in placed}
        for bucket in buckets:
            if (bucket.pieces[0].param, bucket.pieces[0].index) not in start_of:
                continue
            runs: list[tuple[int, int]] = []
            stop = 0
            for piece in bucket.pieces:
                key = piece.param, piece.index
                for first, last in runs_of[key]:
                    runs.append((stop, start_of[key] + first))
                    stop += last - first
            bucket.line = line.part(runs, stop)


def _runs_here(param: Stepped, index: int, region: Region) -> Sequence[tuple[int, int]]:
    if param.tensor is None:
        return ()
    return ((0, region.num_blocks),) if param.runs is None else param.runs[index]


def _elements_before(param: Stepped, index: int, h: Hyperparameters) -> int:
    """Elements in a flat tensor before those of a region."""
    assert param.runs is not None
    before = zip(regions(param.shape, h)[:index], param.runs, strict=False)
    return sum(math.prod(region.block) * (stop - start) for region, runs in before for start, stop in runs)


def _stacked(block: tuple[int, ...], count: int, offset: int) -> Region:
    """Blocks one after the other in a flat tensor."""
    strides = [math.prod(block[dim:]) for dim in range(len(block) + 1)]
    return Region(grid=(count,), block=block, strides=tuple(strides), offset=offset)


def state_by_param(buckets: Sequence[Bucket]) -> dict[Tensor, dict[str, Tensor]]:
    """Views of each parameter's state, named `quantity.i` for its i-th region."""
    views: dict[Tensor, dict[str, Tensor]] = {}
    for bucket in buckets:
        for piece in bucket.pieces:
            views.setdefault(piece.param, {}).update(
                {f"{name}.{piece.number}": x[piece.start : piece.stop] for name, x in bucket.tensors.items()}
            )
    return views


@functools.cache  # called for every parameter in each step
def state_dtype(dtype: torch.dtype) -> torch.dtype:
    """Precision of the state for parameters of this dtype: at least float32, so that averages of bfloat16 gradients
    do not lose what each step adds."""
    return torch.promote_types(dtype, torch.float32)


def max_chunk_blocks(block: Sequence[int], device_type: str, itemsize: int) -> int:
    """The largest number of blocks of this shape that are worked on at a time."""
    chunk_bytes = CHUNK_BYTES.get(device_type, OTHER_CHUNK_BYTES)
    return max(_MIN_CHUNK_BLOCKS, chunk_bytes // (math.prod(block) * itemsize))


def block_operations(block: Sequence[int], sizes: Iterable[int]) -> int:
    """The approximate number of operations of a step of `shampoo` without refresh, on one block with matrices of these
    sizes; other members need up to twice as many."""
    return math.prod(block) * (1 + 2 * sum(sizes))


def _all_rows(chunk: Chunk, sides: Iterable[int]) -> Due:
    return tuple((number, 0, chunk.stop - chunk.start) for number in sides)


def _chunk_blocks(block: Sequence[int], like: Tensor, group_elements: int) -> int:
    most = max_chunk_blocks(block, like.device.type, like.element_size())
    if like.device.type != "cpu":
        return most
    share = group_elements // (_MIN_GROUP_CHUNKS * math.prod(block))
    least = -(-_MIN_CHUNK_OPERATIONS // block_operations(block, block))
    return max(_MIN_CHUNK_BLOCKS, min(most, max(share, least)))


def scratch_elements(num_elements: int) -> int:
    """The elements that one of the tensors of a chunk occupies in scratch memory. Each tensor begins at a cache line,
    because kernels round differently with another alignment, and it is random which thread gets which memory."""
    return -(-num_elements // _CACHE_LINE_ELEMENTS) * _CACHE_LINE_ELEMENTS


def _parts(piece: BucketPiece, max_blocks: int) -> Iterator[BucketPiece]:
    start = piece.start
    for region in piece.region.parts(max_blocks):
        yield dataclasses.replace(piece, region=region, start=start, is_dense=region.is_dense)
        start += region.num_blocks
