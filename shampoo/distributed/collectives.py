"""Collectives of flat buffers that run while other work is done, and that say what failed where."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class UnderWay:
    """A collective that has been started."""

    work: dist.Work | None
    purpose: str
    kept: tuple[Tensor, ...]
    """Buffers that must live until it is done."""

    def wait(self) -> None:
        """Returns when its results can be read, on a GPU by what is queued from now on.

        Raises:
            RuntimeError: it failed; the message names the rank and the purpose.
        """
        if self.work is not None:
            named(self.purpose, self.work.wait)


def all_to_all(
    purpose: str,
    incoming: Tensor,
    outgoing: Tensor,
    sizes_in: Sequence[int],
    sizes_out: Sequence[int],
    group: dist.ProcessGroup,
) -> UnderWay:
    """Starts to send consecutive parts of a buffer to the ranks of a group, and to receive one from each."""
    work = named(
        purpose,
        lambda: dist.all_to_all_single(incoming, outgoing, list(sizes_in), list(sizes_out), group=group, async_op=True),
    )
    return UnderWay(work, purpose, (incoming, outgoing))


def all_gather(purpose: str, gathered: Tensor, own: Tensor, group: dist.ProcessGroup) -> UnderWay:
    """Starts to gather equal buffers, one after the other."""
    # Newer releases of torch warn of the older name.
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    work = named(purpose, lambda: gather(gathered, own, group=group, async_op=True))
    return UnderWay(work, purpose, (gathered, own))


def reduce_scatter(purpose: str, own: Tensor, everything: Tensor, group: dist.ProcessGroup) -> UnderWay:
    """Starts to sum buffers over ranks, of which each gets one of as many equal parts."""
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    work = named(purpose, lambda: scatter(own, everything, group=group, async_op=True))
    return UnderWay(work, purpose, (own, everything))


def all_reduce(purpose: str, tensor: Tensor, group: dist.ProcessGroup) -> UnderWay:
    """Starts to sum a tensor over ranks, in place."""
    work = named(purpose, lambda: dist.all_reduce(tensor, group=group, async_op=True))
    return UnderWay(work, purpose, (tensor,))


def named(purpose: str, collective: Callable[[], T]) -> T:
    """The result of a collective; if it fails, the message names the rank and the purpose."""
    try:
        return collective()
    except RuntimeError as error:
        raise RuntimeError(f"rank {dist.get_rank()}: {purpose} failed: {error}") from error
