"""A rank's training batches, of indices that are drawn here or from a workload that follows the order by itself, and
the tensors in a batch: nested tuples, lists and dicts of them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
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


class RankBatches(Iterator[Any]):
    """A rank's batches, of which the first is looked at: a workload that does not follow the order by ranks, or its
    batch size, would train on another number of examples than its trial says, and nothing would fail."""

    def __init__(self, batches: Iterator[Any], *, share: int) -> None:
        self._batches, self._share = batches, share
        self._is_first = True
        self.remarks: tuple[str, ...] = ()
        """Remarks for a person, if there is anything to say of the batches so far."""

    def __next__(self) -> Any:
        batch = next(self._batches)
        if self._is_first:
            self._is_first = False
            self.remarks = _remarks_on(batch, share=self._share)
        return batch

    def close(self) -> None:
        """Ends the background work of a workload that reads ahead."""
        if isinstance(self._batches, Generator):
            self._batches.close()


def _remarks_on(batch: object, *, share: int) -> tuple[str, ...]:
    # Some of the tensors may have other rows, as the nodes of graphs.
    rows = [len(tensor) if tensor.ndim else 0 for tensor in tensors_in(batch)]
    if not rows or share in rows:
        return ()
    return (
        f"the batches of a rank have {rows[0]:,} rows and not {share:,}, its share of the batch size: what is said of "
        "examples, epochs, speed and batch sizes is not true of them",
    )


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
