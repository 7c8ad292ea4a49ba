"""Collectives of flat buffers, which run during other work, and whose errors name the rank and the purpose.

Tensors of any shapes and dtypes share one flat buffer of bytes, so one collective moves them all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from shampoo.torch_internals import foreach_copy_

T = TypeVar("T")

_ALIGNMENT = 16
"""Bytes: no dtype here is longer than 8, and vector units load 16."""


@dataclass(frozen=True, slots=True)
class UnderWay:
    """A collective that has been started."""

    work: dist.Work | None
    purpose: str
    kept: tuple[Tensor, ...]
    """Buffers that must live until it is done."""

    def wait(self) -> None:
        """Returns when its results can be read; on a GPU, by operations that are queued from now on.

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
    # Newer releases of torch warn about the older name.
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    work = named(purpose, lambda: gather(gathered, own, group=group, async_op=True))
    return UnderWay(work, purpose, (gathered, own))


def reduce_scatter(purpose: str, own: Tensor, everything: Tensor, group: dist.ProcessGroup) -> UnderWay:
    """Starts to sum buffers over ranks; each rank gets one of the equal parts of the sum."""
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


class FlatLayout:
    """The places of tensors of these shapes and dtypes in a buffer."""

    def __init__(self, specs: Sequence[tuple[tuple[int, ...], torch.dtype]]) -> None:
        self._specs = specs
        self._offsets: list[int] = []
        self.num_bytes = 0
        """Length of the buffer, a multiple of the alignment, so that layouts may follow one another."""
        for shape, dtype in specs:
            self._offsets.append(self.num_bytes)
            self.num_bytes += math.ceil(math.prod(shape) * dtype.itemsize / _ALIGNMENT) * _ALIGNMENT

    def views(self, buffer: Tensor) -> list[Tensor]:
        """The tensors that a buffer of `num_bytes` bytes holds."""
        return [
            buffer[offset : offset + math.prod(shape) * dtype.itemsize].view(dtype).view(shape)
            for offset, (shape, dtype) in zip(self._offsets, self._specs, strict=True)
        ]


def buffer_of(layouts: Sequence[FlatLayout], device: torch.device) -> Tensor:
    """An uninitialised buffer for layouts that follow one another."""
    return torch.empty(sum(layout.num_bytes for layout in layouts), dtype=torch.uint8, device=device)


def pieces_of(buffer: Tensor, layouts: Sequence[FlatLayout]) -> list[list[Tensor]]:
    """The tensors of each of the layouts that follow one another at the beginning of a buffer."""
    sizes = [layout.num_bytes for layout in layouts]
    parts = torch.split(buffer[: sum(sizes)], sizes)
    return [layout.views(part) for layout, part in zip(layouts, parts, strict=True)]


def copy_all(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """Copies each source into its target of equal shape."""
    pairs = [(target, source) for target, source in zip(targets, sources, strict=True) if target.numel() > 0]
    if pairs:
        foreach_copy_([target for target, _ in pairs], [source for _, source in pairs])
