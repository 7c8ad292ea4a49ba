"""Optimizer state in stacked buckets: all equal-shaped blocks of a parameter group lie in one tensor per quantity.

So a step is a few batched operations whatever the number of layers. A parameter's regions are consecutive rows of
one or more buckets; what a checkpoint holds are those rows, so the order of a bucket is no part of the format. The
elements of parameters without a preconditioner are blocks of shape (): their bucket is one flat tensor.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

import torch
from torch import Tensor

from shampoo.block_state import BlockState, allocate, assemble
from shampoo.block_step import Due, is_refreshed
from shampoo.blocking import Region, regions
from shampoo.hyperparameters import Hyperparameters
from shampoo.sides import refresh_costs
from shampoo.stagger import Line, lines
from shampoo.timing import StepScalars

CHUNK_BYTES = {"cpu": 4 << 20}
"""Gradient to work on at a time, by type of device. 4 MB on the CPU stay in the cache from the gather to the update."""
OTHER_CHUNK_BYTES = 384 << 20
"""The same elsewhere, where it only bounds the scratch memory: fewer chunks are fewer kernels, and GPT-2 is one."""
_MIN_CHUNK_BLOCKS = 4


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive rows of a bucket that are one region of one parameter."""

    param: Tensor
    region: Region
    start: int
    """First row of the bucket."""
    is_dense: bool
    """Whether the region's memory is in the order of the rows."""

    @property
    def stop(self) -> int:
        return self.start + self.region.num_blocks


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive pieces of a bucket, small enough to be worked on together, and their state."""

    pieces: tuple[Piece, ...]
    state: BlockState

    @property
    def start(self) -> int:
        return self.pieces[0].start

    @property
    def stop(self) -> int:
        return self.pieces[-1].stop

    def parts(self, X: Tensor) -> list[Tensor]:
        """X, (K, d_1, ..., d_k) over the chunk's rows, as the pieces' regions: views of shape grid + block."""
        start = self.start
        return [
            X[piece.start - start : piece.stop - start].view(piece.region.grid + X.shape[1:]) for piece in self.pieces
        ]

    def aligned(self, X: Tensor, tensors: Mapping[Tensor, Tensor]) -> list[tuple[list[Tensor], list[Tensor]]]:
        """X, (K, d_1, ..., d_k) over the chunk's rows, beside the pieces' regions of contiguous tensors, given by
        parameter: lists of equal-shaped views. What is dense comes first and flat, for then one kernel does it all."""
        dense: tuple[list[Tensor], list[Tensor]] = [], []
        strided: tuple[list[Tensor], list[Tensor]] = [], []
        first = self.start
        for piece in self.pieces:
            rows, tensor, region = X[piece.start - first : piece.stop - first], tensors[piece.param], piece.region
            if piece.is_dense:
                dense[0].append(rows.view(-1))
                dense[1].append(region.flat(tensor))
            else:
                strided[0].append(rows.view(region.grid + region.block))
                strided[1].append(region.view(tensor))
        return [lists for lists in (dense, strided) if lists[0]]


class Bucket:
    """Equal-shaped blocks of parameters with the same hyperparameters, dtype and device."""

    def __init__(
        self, block: tuple[int, ...], owners: Sequence[tuple[Tensor, Region]], h: Hyperparameters, line: Line
    ) -> None:
        self.block = block
        self.line = line
        starts = itertools.accumulate((region.num_blocks for _, region in owners), initial=0)
        self.pieces = [
            Piece(param, region, start, region.is_dense) for (param, region), start in zip(owners, starts, strict=False)
        ]
        self.num_blocks = self.pieces[-1].stop
        self.like = owners[0][0].new_empty((), dtype=state_dtype(owners[0][0].dtype))
        self.tensors = allocate(self.num_blocks, block, h, self.like)
        self.state = assemble(self.tensors, block, h)
        self.all_refreshed = False
        """Whether every unit has been refreshed at least once; `look_at_refreshes` brings it up to date."""
        self._max_blocks = max_chunk_blocks(block, self.like.device.type, self.like.element_size())
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
        pending: list[Piece] = []
        for part in self._parts:
            step = steps.get(part.param)
            if pending and (
                step != steps[pending[0].param]  # also where a part sits this step out, so the rows stay consecutive
                or part.stop - pending[0].start > self._max_blocks
            ):
                yield steps[pending[0].param], self._chunk(pending)
                pending = []
            if step is not None:
                pending.append(part)
        if pending:
            yield steps[pending[0].param], self._chunk(pending)

    def _chunk(self, pieces: Sequence[Piece]) -> Chunk:
        return Chunk(tuple(pieces), self.state.rows(pieces[0].start, pieces[-1].stop))

    def due(self, chunk: Chunk, h: Hyperparameters, at: StepScalars) -> Due:
        """The units of a chunk to refresh, as (side, first row of the chunk, last row + 1)."""
        if not self.state.sides:
            return ()
        num_rows = chunk.stop - chunk.start
        sides = [number for number, side in enumerate(self.state.sides) if side.refreshed is not None]
        everything = tuple((number, 0, num_rows) for number in sides)
        if not (self.all_refreshed or is_refreshed(chunk.state)):
            return everything if at.has_started else ()
        if not h.stagger_refresh:
            return everything if at.phase == 0 else ()
        due: list[tuple[int, int, int]] = []
        for number in sides:
            start, stop = self.line.rows(number, at.phase, h.refresh_period)
            start, stop = max(start - chunk.start, 0), min(stop - chunk.start, num_rows)
            if start < stop:
                due.append((number, start, stop))
        return tuple(due)

    def look_at_refreshes(self) -> None:
        """Brings `all_refreshed` up to date."""
        self.all_refreshed = is_refreshed(self.state)


def make_buckets(params: Sequence[Tensor], h: Hyperparameters, *, elsewhere: Set[Tensor] = frozenset()) -> list[Bucket]:
    """Buckets with fresh state for the parameters of one group, in order of first appearance.

    Those `elsewhere` have no place in them, and decide only at which step the others are refreshed.
    """
    members: dict[tuple[object, ...], list[tuple[Tensor, Region]]] = {}
    for param in params:
        for region in regions(param.shape, h):
            members.setdefault((region.block, param.dtype, param.device), []).append((param, region))
    sizes = [
        (sum(region.num_blocks for _, region in placed), refresh_costs(placed[0][1].block, h))
        for placed in members.values()
    ]
    buckets: list[Bucket] = []
    for placed, line in zip(members.values(), lines(sizes), strict=True):
        here: list[tuple[Tensor, Region]] = []
        runs: list[tuple[int, int]] = []
        stop = all_stop = 0
        for param, region in placed:
            if param not in elsewhere:
                if not runs or runs[-1][1] - runs[-1][0] != all_stop - stop:
                    runs.append((stop, all_stop))
                here.append((param, region))
                stop += region.num_blocks
            all_stop += region.num_blocks
        if here:
            buckets.append(Bucket(placed[0][1].block, here, h, line.part(runs, stop)))
    return buckets


def state_by_param(buckets: Sequence[Bucket]) -> dict[Tensor, dict[str, Tensor]]:
    """Views of each parameter's state, named `quantity.i` for its i-th region."""
    views: dict[Tensor, dict[str, Tensor]] = {}
    num_regions: dict[Tensor, int] = {}
    for bucket in buckets:
        for piece in bucket.pieces:
            index = num_regions.get(piece.param, 0)
            num_regions[piece.param] = index + 1
            views.setdefault(piece.param, {}).update(
                {f"{name}.{index}": x[piece.start : piece.stop] for name, x in bucket.tensors.items()}
            )
    return views


def state_dtype(dtype: torch.dtype) -> torch.dtype:
    """Precision of the state for parameters of this dtype: at least float32, so that averages of bfloat16 gradients
    do not lose what each step adds."""
    return torch.promote_types(dtype, torch.float32)


def max_chunk_blocks(block: Sequence[int], device_type: str, itemsize: int) -> int:
    """How many blocks of this shape are worked on at a time."""
    chunk_bytes = CHUNK_BYTES.get(device_type, OTHER_CHUNK_BYTES)
    return max(_MIN_CHUNK_BLOCKS, chunk_bytes // (math.prod(block) * itemsize))


def _parts(piece: Piece, max_blocks: int) -> Iterator[Piece]:
    start = piece.start
    for region in piece.region.parts(max_blocks):
        yield Piece(piece.param, region, start, region.is_dense)
        start += region.num_blocks
