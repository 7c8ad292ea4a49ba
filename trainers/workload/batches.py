"""A rank's training batches, of indices that are drawn here or from a workload that follows the order by itself, and
the tensors in a batch: nested tuples, lists and dicts of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor

from trainers.config import InvalidConfig
from trainers.data.order import rank_batches
from trainers.workload.protocol import GivesBatches, ReadsAhead, Workload


class BatchesEnded(Exception):
    """A workload gave no batch for a step, although its batches must be endless."""


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


def check_has_examples(workload: Workload) -> None:
    """Raises: InvalidConfig: the workload has no training example, as one that looks for its files in a wrong place."""
    if workload.num_train_examples < 1:
        raise InvalidConfig(
            "workload_options",
            f"{type(workload).__name__} has no training examples (num_train_examples is "
            f"{workload.num_train_examples}): are its data where it looks for them?",
        )


def tensors_in(batch: object) -> Iterator[Tensor]:
    """Every tensor of a batch, in the order of `placed_tensors`."""
    return (tensor for _, tensor in placed_tensors(batch))


def placed_tensors(batch: object, place: str = "batch") -> Iterator[tuple[str, Tensor]]:
    """Every tensor of a batch with its place in it, e.g. `batch['images'][0]`; of a dict in the order of its names."""
    match batch:
        case Tensor():
            yield place, batch
        case tuple() | list():
            for index, part in enumerate(batch):
                yield from placed_tensors(part, f"{place}[{index}]")
        case dict():
            for name in sorted(batch, key=str):
                yield from placed_tensors(batch[name], f"{place}[{name!r}]")


def with_tensors(batch: object, change: Callable[[Tensor], Tensor]) -> object:
    """The batch with each tensor changed; what is none stays as it is."""
    match batch:
        case Tensor():
            return change(batch)
        case tuple() if hasattr(batch, "_make"):  # a named tuple
            return batch._make(with_tensors(part, change) for part in batch)
        case tuple():
            return tuple(with_tensors(part, change) for part in batch)
        case list():
            return [with_tensors(part, change) for part in batch]
        case dict():
            return {name: with_tensors(part, change) for name, part in batch.items()}
        case _:
            return batch
