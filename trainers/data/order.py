"""The order of examples: one endless stream of seeded permutations, cut into batches and shared by ranks.

Position `i` of the stream is element `i % n` of the permutation of epoch `i // n`. So every example is seen once per
epoch, no batch is short, and the batch of a step follows from the step alone, whatever came before.

The permutation of very many examples is never listed: that would take 8 bytes and 70 ns of each, on each rank, for
each trial that begins or resumes. Its elements are computed where they are needed, in 0.1 ms for a batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

MAX_LISTED = 2**24
"""Examples whose permutation is listed: 134 MB, a second. No more, so that a trial starts at once."""
NUM_ROUNDS = 4
"""Rounds of each half in `permuted`: with one or two, neighbours stay nearer to each other than by chance."""
MULTIPLIERS = (0x2545F4914F6CDD1D, 0x5851F42D4C957F2D)
"""Odd numbers whose bits look random, below 2^63."""


def epoch_permutation(num_examples: int, *, seed: int, epoch: int) -> Tensor:
    """The order of the examples in an epoch: (num_examples,) int64."""
    return torch.randperm(num_examples, generator=_generator(seed, epoch))


def permuted(positions: Tensor, num_examples: int, *, seed: int, epoch: int) -> Tensor:
    """The elements at some positions of a permutation of `num_examples` examples, without the others.

    A position is a cell of a table that is as square as can be. Each round moves a row by a number that follows from
    the column, and then a column by one that follows from the row (a Feistel network), so no two cells meet. A cell
    that ends behind the last example is moved again until it does not.

    Args:
        positions: (b,) int64, each in [0, `num_examples`).
    """
    keys = torch.randint(2**62, (NUM_ROUNDS, 2), generator=_generator(seed, epoch)).tolist()
    num_rows = math.isqrt(num_examples - 1) + 1
    num_columns = -(-num_examples // num_rows)

    def moved(cells: Tensor) -> Tensor:
        row, column = cells // num_columns, cells % num_columns
        for key, other_key in keys:
            row = (row + _mixed(column + key)) % num_rows
            column = (column + _mixed(row + other_key)) % num_columns
        return row * num_columns + column

    found = moved(positions)
    while bool((is_behind := found >= num_examples).any()):
        found = torch.where(is_behind, moved(found), found)
    return found


def _mixed(x: Tensor) -> Tensor:
    """Numbers that look random, each following from its element; products wrap around."""
    for multiplier in MULTIPLIERS:
        x = x * multiplier
        x = x ^ (x >> 32)
    return x


def _generator(seed: int, epoch: int) -> torch.Generator:
    # Odd multipliers keep (seed, epoch) pairs of neighbouring trials apart, also in the lower 32 bits, which are all
    # that a generator on the CPU takes of its seed.
    return torch.Generator().manual_seed((seed * 0x9E3779B97F4A7C15 + epoch * 0xD1B54A32D192ED03) % 2**63)


def rank_batches(
    num_examples: int, *, batch_size: int, seed: int, rank: int, world_size: int, start_step: int
) -> Iterator[Tensor]:
    """Endless batches of example indices for one rank, from step `start_step` (the first step is 0).

    A rank's batch is the `rank`-th of `world_size` equal, contiguous parts of the step's global batch:
    (batch_size / world_size,) int64.

    Raises:
        ValueError: a global batch cannot be shared equally, or there are no examples.
    """
    if batch_size % world_size != 0:
        raise ValueError(f"batch_size {batch_size} is not divisible by world_size {world_size}")
    if num_examples < 1:
        raise ValueError(f"num_examples must be >= 1, got {num_examples}")
    share = batch_size // world_size
    position = start_step * batch_size + rank * share
    is_listed = num_examples <= MAX_LISTED
    listed_epoch = -1
    while True:
        parts = []
        begin, end = position, position + share
        while begin < end:
            epoch, first = divmod(begin, num_examples)
            last = min(first + end - begin, num_examples)
            if is_listed and epoch != listed_epoch:
                permutation, listed_epoch = epoch_permutation(num_examples, seed=seed, epoch=epoch), epoch
            if is_listed:
                part = permutation[first:last]
            else:
                part = permuted(torch.arange(first, last), num_examples, seed=seed, epoch=epoch)
            parts.append(part)
            begin += len(part)
        yield torch.cat(parts)
        position += batch_size
