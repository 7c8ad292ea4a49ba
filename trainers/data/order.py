"""The order of examples: one endless stream of seeded permutations, cut into batches and shared by ranks.

Position `i` of the stream is element `i % n` of the permutation of epoch `i // n`. So every example is seen once per
epoch, no batch is short, and the batch of a step follows from the step alone, whatever came before.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor


def epoch_permutation(num_examples: int, *, seed: int, epoch: int) -> Tensor:
    """The order of the examples in an epoch: (num_examples,) int64."""
    # Odd multipliers keep (seed, epoch) pairs of neighbouring trials apart, also in the lower 32 bits, which are all
    # that a generator on the CPU takes of its seed.
    mixed = (seed * 0x9E3779B97F4A7C15 + epoch * 0xD1B54A32D192ED03) % 2**63
    return torch.randperm(num_examples, generator=torch.Generator().manual_seed(mixed))


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
    epoch = -1
    while True:
        parts = []
        begin, end = position, position + share
        while begin < end:
            if begin // num_examples != epoch:
                epoch = begin // num_examples
                permutation = epoch_permutation(num_examples, seed=seed, epoch=epoch)
            part = permutation[begin % num_examples : begin % num_examples + end - begin]
            parts.append(part)
            begin += len(part)
        yield torch.cat(parts)
        position += batch_size
