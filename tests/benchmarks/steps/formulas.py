"""The least cost of a step, from parameter shapes alone: blocks, floating-point operations, bytes of state.

For a block of n elements and a side of length d with a full d×d factor: its Gram matrix takes 2nd operations, a product
with a matrix along the side another 2nd. shampoo needs one of each in every step (4nd), soap the Gram matrix, a
rotation into the eigenbasis and one back (6nd); kl the same, its whitened gradients left out. For an m×n block that is
4mn(m + n) and 6mn(m + n). Elementwise work and roots are left out: they are what the ratios show.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable

from shampoo.state.blocking import cut, merged_shape
from tests.benchmarks.steps.model_shapes import Shapes

Block = tuple[int, ...]

PRECONDITIONERS = ("shampoo", "soap", "kl")
_PASSES = {"shampoo": 2, "soap": 3, "kl": 3}
_MAX_ASPECT = 32
_FLOAT_BYTES = 4


def blocks(shapes: Shapes, max_dim: int) -> Counter[Block]:
    """The blocks into which parameters of these shapes are cut, with their number; vectors are blocks of order 1."""
    found: Counter[Block] = Counter()
    for shape in shapes:
        merged = merged_shape(shape, max_dim)
        runs = [cut(length, max_dim) if len(merged) > 1 else [(1, length)] for length in merged]
        for corner in itertools.product(*runs):
            found[tuple(size for _, size in corner)] += math.prod(count for count, _ in corner)
    return found


def full_sides(block: Block) -> tuple[int, ...]:
    """The sides of a block that have a matrix; none for vectors, and none much longer than the rest of the block."""
    numel = math.prod(block)
    return tuple(d for d in block if len(block) > 1 and d * d <= _MAX_ASPECT * numel)


def product_operations(found: Counter[Block], preconditioner: str) -> int:
    """Floating-point operations of the matrix products of one step without a refresh."""
    passes = _PASSES[preconditioner]
    return sum(count * passes * 2 * math.prod(block) * sum(full_sides(block)) for block, count in found.items())


def state_bytes(found: Counter[Block], preconditioner: str) -> int:
    """Bytes of float32 state: two averages of the gradient, two matrices for each full side.

    kl has no second average where there is a factor, and keeps its eigenvalues.
    """
    numbers = 0
    for block, count in found.items():
        sides = full_sides(block)
        averages = 1 if preconditioner == "kl" and sides else 2
        numbers += count * (averages * math.prod(block) + sum(2 * d * d for d in sides))
        if preconditioner == "kl":
            numbers += count * sum(sides)
    return _FLOAT_BYTES * numbers


def num_elements(shapes: Iterable[tuple[int, ...]]) -> int:
    return sum(math.prod(shape) for shape in shapes)


def matrix_shape(shape: tuple[int, ...], max_dim: int) -> tuple[int, ...]:
    """A parameter as the matrix that ours preconditions, kernel sides merged into the input side; vectors as such."""
    merged = merged_shape(shape, max_dim)
    return merged if len(merged) < 3 else (merged[0], math.prod(merged[1:]))
