"""Optimizer state in stacked buckets: all equal-shaped blocks of a parameter group lie in one tensor per quantity.

So a step is a few batched operations whatever the number of layers. A parameter's regions are consecutive rows of
one or more buckets; what a checkpoint holds are those rows, so the order of a bucket is no part of the format.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from shampoo.blocking import Region, regions
from shampoo.grafting import has_second_moment
from shampoo.hyperparameters import Hyperparameters
from shampoo.preconditioners import factor_kinds, factor_shape, set_to_identity

# 4 MB of gradient on the CPU stay in the cache from the gather to the update; at least four blocks per matrix product.
_CPU_CHUNK_BYTES = 4 << 20
_CPU_CHUNK_BLOCKS = 4


@dataclass(frozen=True, slots=True)
class BlockState:
    """State of K stacked blocks of shape d_1 × ... × d_k; slices of it share its memory."""

    factors: tuple[Tensor, ...]
    """A_i, (K, d_i, d_i) or (K, d_i)."""
    roots: tuple[Tensor, ...]
    """P_i, like the factors; the identity before the first refresh."""
    num_failed_roots: Tensor | None
    """How often a block's root could not be found and the previous one stayed, (K,) int64; None without factors."""
    first_moment: Tensor | None
    """M, (K, d_1, ..., d_k); None for β1 = 0."""
    second_moment: Tensor | None
    """V of the grafting."""
    momentum: Tensor | None
    """B; None without momentum."""

    @classmethod
    def zeros(cls, num_blocks: int, block: Sequence[int], h: Hyperparameters, like: Tensor) -> BlockState:
        """State before the first step, with dtype and device of `like`."""
        kinds = factor_kinds(block, h.grafting)
        shapes = [(num_blocks, *factor_shape(kind, d)) for kind, d in zip(kinds, block, strict=False)]
        roots = tuple(like.new_empty(shape) for shape in shapes)
        for root in roots:
            set_to_identity(root)

        def elementwise(wanted: bool) -> Tensor | None:
            return like.new_zeros((num_blocks, *block)) if wanted else None

        return cls(
            factors=tuple(like.new_zeros(shape) for shape in shapes),
            roots=roots,
            num_failed_roots=like.new_zeros(num_blocks, dtype=torch.int64) if kinds else None,
            first_moment=elementwise(h.betas[0] > 0),
            second_moment=elementwise(has_second_moment(h.grafting)),
            momentum=elementwise(h.momentum > 0),
        )

    def rows(self, start: int, stop: int) -> BlockState:
        """The state of blocks start, ..., stop − 1."""

        def part(x: Tensor | None) -> Tensor | None:
            return None if x is None else x[start:stop]

        return BlockState(
            factors=tuple(A[start:stop] for A in self.factors),
            roots=tuple(P[start:stop] for P in self.roots),
            num_failed_roots=part(self.num_failed_roots),
            first_moment=part(self.first_moment),
            second_moment=part(self.second_moment),
            momentum=part(self.momentum),
        )

    def named(self) -> dict[str, Tensor]:
        """Every tensor by the name under which a checkpoint holds it."""
        optional = {
            "num_failed_roots": self.num_failed_roots,
            "first_moment": self.first_moment,
            "second_moment": self.second_moment,
            "momentum": self.momentum,
        }
        return {
            **{f"factor{i}": A for i, A in enumerate(self.factors)},
            **{f"root{i}": P for i, P in enumerate(self.roots)},
            **{name: x for name, x in optional.items() if x is not None},
        }


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive rows of a bucket that are one region of one parameter."""

    param: Tensor
    region: Region
    start: int
    """First row of the bucket."""

    @property
    def stop(self) -> int:
        return self.start + self.region.num_blocks


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive pieces of a bucket at the same step count, small enough to be worked on together."""

    step: int
    pieces: tuple[Piece, ...]

    @property
    def start(self) -> int:
        return self.pieces[0].start

    @property
    def stop(self) -> int:
        return self.pieces[-1].stop


class Bucket:
    """Equal-shaped blocks of parameters with the same hyperparameters, dtype and device."""

    def __init__(self, block: tuple[int, ...], owners: Sequence[tuple[Tensor, Region]], h: Hyperparameters) -> None:
        self.block = block
        starts = itertools.accumulate((region.num_blocks for _, region in owners), initial=0)
        self.pieces = [Piece(param, region, start) for (param, region), start in zip(owners, starts, strict=False)]
        like = owners[0][0].new_empty((), dtype=state_dtype(owners[0][0].dtype))
        self.state = BlockState.zeros(self.pieces[-1].stop, block, h, like)
        self._max_blocks = _max_blocks(block, like)
        self._parts = [part for piece in self.pieces for part in _parts(piece, self._max_blocks)]

    def chunks(self, steps: Mapping[Tensor, int]) -> Iterator[Chunk]:
        """The chunks to work on, given the step count of each parameter that takes part in this step."""
        pending: list[Piece] = []
        for part in self._parts:
            step = steps.get(part.param)
            if pending and (
                step != steps[pending[0].param]  # also where a part sits this step out, so the rows stay consecutive
                or part.stop - pending[0].start > self._max_blocks
            ):
                yield Chunk(steps[pending[0].param], tuple(pending))
                pending = []
            if step is not None:
                pending.append(part)
        if pending:
            yield Chunk(steps[pending[0].param], tuple(pending))


def make_buckets(params: Sequence[Tensor], h: Hyperparameters) -> list[Bucket]:
    """Buckets with fresh state for the parameters of one group, in order of first appearance."""
    owners: dict[tuple[object, ...], list[tuple[Tensor, Region]]] = {}
    for param in params:
        for region in regions(param.shape, h.max_preconditioner_dim):
            owners.setdefault((region.block, param.dtype, param.device), []).append((param, region))
    return [Bucket(members[0][1].block, members, h) for members in owners.values()]


def state_by_param(buckets: Sequence[Bucket]) -> dict[Tensor, dict[str, Tensor]]:
    """Views of each parameter's state, named `quantity.i` for its i-th region."""
    views: dict[Tensor, dict[str, Tensor]] = {}
    num_regions: dict[Tensor, int] = {}
    for bucket in buckets:
        for piece in bucket.pieces:
            index = num_regions.get(piece.param, 0)
            num_regions[piece.param] = index + 1
            rows = bucket.state.rows(piece.start, piece.stop).named()
            views.setdefault(piece.param, {}).update({f"{name}.{index}": x for name, x in rows.items()})
    return views


def state_dtype(dtype: torch.dtype) -> torch.dtype:
    """Precision of the state for parameters of this dtype: at least float32, so that averages of bfloat16 gradients
    do not lose what each step adds."""
    return torch.promote_types(dtype, torch.float32)


def _max_blocks(block: tuple[int, ...], like: Tensor) -> int:
    numel = torch.Size(block).numel()
    if like.device.type != "cpu":
        return (1 << 62) // numel
    return max(_CPU_CHUNK_BLOCKS, _CPU_CHUNK_BYTES // (numel * like.element_size()))


def _parts(piece: Piece, max_blocks: int) -> Iterator[Piece]:
    start = piece.start
    for region in piece.region.parts(max_blocks):
        yield Piece(piece.param, region, start)
        start += region.num_blocks
