"""A rank's training batches, of indices that are drawn here or from a workload that follows the order by itself, and
the tensors in a batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from trainers.config import InvalidConfig
from trainers.data.order import rank_batches
from trainers.workload.protocol import GivesBatches, ReadsAhead, Workload


def train_batches(
    workload: Workload, *, batch_size: int, seed: int, rank: int, world_size: int, start_step: int
) -> Iterator[Any]:
    """Endless batches of one rank from step `start_step` (the first is 0) on; `batch_size` is over all ranks.

    What a batch is, only the workload knows.

    Raises:
        InvalidConfig: the workload has no method that gives batches.
    """
    if isinstance(workload, ReadsAhead):
        return workload.train_batches(
            batch_size=batch_size, seed=seed, rank=rank, world_size=world_size, start_step=start_step
        )
    if not isinstance(workload, GivesBatches):
        raise InvalidConfig("workload", f"{type(workload).__name__} has neither batch nor train_batches")
    order = rank_batches(
        workload.num_train_examples,
        batch_size=batch_size,
        seed=seed,
        rank=rank,
        world_size=world_size,
        start_step=start_step,
    )
    return map(workload.batch, order)


def tensors_in(batch: object) -> Iterator[Tensor]:
    """Every tensor in nested tuples, lists and dicts; of a dict in the order of its names."""
    match batch:
        case Tensor():
            yield batch
        case tuple() | list():
            for part in batch:
                yield from tensors_in(part)
        case dict():
            for name in sorted(batch, key=str):
                yield from tensors_in(batch[name])
