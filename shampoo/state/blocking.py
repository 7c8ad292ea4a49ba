"""From parameter shapes to blocks: merging small dimensions, cutting long ones, and where the blocks lie in memory.

Pure functions of shapes. A tensor is seen in its merged shape, every dimension is cut into at most two runs of equal
pieces, and each combination of runs is a `Region`: a grid of equal-shaped blocks that one strided view addresses.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from shampoo.hyperparameters import Hyperparameters
from shampoo.state.factors import is_plain


def merged_shape(shape: Sequence[int], max_dim: int) -> tuple[int, ...]:
    """The shape in which a tensor is preconditioned; () for an empty tensor.

    Dimensions of size 1 are dropped; a scalar is a vector of one element. Then, while more than two dimensions are
    left, the two neighbours of smallest product are merged if that product is at most `max_dim`, or if one of them is
    short (at most √max_dim: the kernel of a convolution), because its own factor is then not worth the higher root and
    the permuted copies that it costs. A matrix never becomes a vector, so no matrix gets a single factor over all its
    entries: Meta's implementation does that to a 90×90 matrix at 8192, for 250 MiB.
    """
    if 0 in shape:
        return ()
    merged = [d for d in shape if d != 1] or [1]
    while len(merged) > 2:
        products = [a * b for a, b in itertools.pairwise(merged)]
        at = products.index(min(products))
        if products[at] > max_dim and min(merged[at], merged[at + 1]) ** 2 > max_dim:
            break
        merged[at : at + 2] = [products[at]]
    return tuple(merged)


def cut(length: int, max_dim: int) -> list[tuple[int, int]]:
    """Runs of equal pieces, [(number of pieces, length of each), ...], that make up a dimension.

    The smallest number of pieces that divides the length exactly, as long as it is at most twice the necessary
    number; otherwise balanced, lengths differing by one. 4608 at 1024 is 6×768, and 1025 is 513 + 512.
    """
    needed = -(-length // max_dim)
    for count in range(needed, 2 * needed + 1):
        if length % count == 0:
            return [(count, length // count)]
    short, num_long = divmod(length, needed)
    return [(num_long, short + 1), (needed - num_long, short)]


@dataclass(frozen=True, slots=True)
class Region:
    """A grid of equal-shaped blocks of one contiguous tensor."""

    grid: tuple[int, ...]
    """Number of blocks along each merged dimension."""
    block: tuple[int, ...]
    """Shape of every block."""
    strides: tuple[int, ...]
    """Strides, in elements, of `view`: those of the grid, then those within a block."""
    offset: int
    """First element of the region in the tensor."""

    @property
    def num_blocks(self) -> int:
        return math.prod(self.grid)

    def view(self, tensor: Tensor) -> Tensor:
        """The region of a contiguous tensor as a view of shape `grid + block`."""
        return tensor.as_strided(self.grid + self.block, self.strides, tensor.storage_offset() + self.offset)

    @property
    def is_dense(self) -> bool:
        """True if the region's elements are contiguous in memory, in the order of its blocks."""
        expected = 1
        for extent, stride in zip(reversed(self.grid + self.block), reversed(self.strides), strict=True):
            if extent > 1 and stride != expected:
                return False
            expected *= extent
        return True

    def flat(self, tensor: Tensor) -> Tensor:
        """A dense region of a contiguous tensor, as a vector."""
        return tensor.as_strided((math.prod(self.grid + self.block),), (1,), tensor.storage_offset() + self.offset)

    def parts(self, max_blocks: int) -> Iterator[Region]:
        """Sub-grids of at most `max_blocks` blocks that follow one another in row-major order of the grid."""
        axis, inner = len(self.grid), 1
        while axis > 0 and inner * self.grid[axis - 1] <= max_blocks:
            axis -= 1
            inner *= self.grid[axis]
        if axis == 0:
            yield self
            return
        axis -= 1
        width = max(1, max_blocks // inner)
        for outer in itertools.product(*(range(n) for n in self.grid[:axis])):
            for start in range(0, self.grid[axis], width):
                extent = min(width, self.grid[axis] - start)
                shift = sum(i * stride for i, stride in zip((*outer, start), self.strides, strict=False))
                yield Region(
                    grid=(*(1 for _ in outer), extent, *self.grid[axis + 1 :]),
                    block=self.block,
                    strides=self.strides,
                    offset=self.offset + shift,
                )


def regions(shape: Sequence[int], h: Hyperparameters) -> list[Region]:
    """The regions that together cover a tensor of this shape: at most 2^order, none if it is empty.

    A tensor without a preconditioner is one region whose blocks are its elements, in their order.
    """
    merged = merged_shape(shape, h.max_preconditioner_dim)
    if not merged:
        return []
    flat = [Region(grid=(math.prod(merged),), block=(), strides=(1,), offset=0)]
    if len(merged) < 2 or h.preconditioner == "none":
        return flat
    strides = [math.prod(merged[i + 1 :]) for i in range(len(merged))]
    runs: list[list[tuple[int, int, int]]] = []
    for length in merged:
        start = 0
        runs.append([])
        for count, size in cut(length, h.max_preconditioner_dim) if h.large_dim_method == "blocking" else [(1, length)]:
            runs[-1].append((start, count, size))
            start += count * size
    corners = list(itertools.product(*runs))
    if all(is_plain([size for _, _, size in corner], h) for corner in corners):
        return flat
    return [
        Region(
            grid=tuple(count for _, count, _ in corner),
            block=tuple(size for _, _, size in corner),
            strides=(*(s * size for s, (_, _, size) in zip(strides, corner, strict=True)), *strides),
            offset=sum(s * start for s, (start, _, _) in zip(strides, corner, strict=True)),
        )
        for corner in corners
    ]
