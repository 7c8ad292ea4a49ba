"""Parameters that have elements in common: each parameter would step these elements with its own state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from shampoo.distributed.layout import is_dtensor


@dataclass(frozen=True, slots=True)
class _Extent:
    """The address of a tensor's first byte, and the one after its last byte."""

    index: int
    start: int
    stop: int


def overlapping(tensors: Sequence[Tensor]) -> tuple[int, int] | None:
    """The positions of two tensors that share an element; None if no two do.

    For DTensors the shards of this rank count. Other tensors that are not plain, and those without memory, such as on
    the device "meta", are left out.
    """
    with torch.no_grad():
        tensors = [x.to_local() if is_dtensor(x) else x for x in tensors]
    by_storage: dict[int, list[_Extent]] = {}
    for index, x in enumerate(tensors):
        if type(x) in (Tensor, nn.Parameter) and x.layout == torch.strided and x.data_ptr() != 0:
            last = sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
            extent = _Extent(index, x.data_ptr(), x.data_ptr() + (last + 1) * x.itemsize)
            by_storage.setdefault(x.untyped_storage().data_ptr(), []).append(extent)
    for extents in by_storage.values():
        for interlocked in _interlocked(extents):
            found = _first_pair([(extent, tensors[extent.index]) for extent in interlocked])
            if found is not None:
                return found
    return None


def _interlocked(extents: Sequence[_Extent]) -> list[list[_Extent]]:
    """The extents of one storage, in runs in which each overlaps an earlier one."""
    runs: list[list[_Extent]] = []
    stop = 0
    for extent in sorted(extents, key=lambda extent: extent.start):
        if extent.start >= stop:
            runs.append([])
        runs[-1].append(extent)
        stop = max(stop, extent.stop)
    return runs


def _first_pair(run: Sequence[tuple[_Extent, Tensor]]) -> tuple[int, int] | None:
    """The positions of two tensors of a run that share a byte; columns of one matrix interlock without sharing any."""
    if len(run) == 1:
        return None
    begin = run[0][0].start
    taken = torch.zeros(max(extent.stop for extent, _ in run) - begin, dtype=torch.bool, device="cpu")

    def of(extent: _Extent, x: Tensor) -> Tensor:
        strides = [stride * x.itemsize for stride in x.stride()]
        return taken.as_strided((*x.shape, x.itemsize), (*strides, 1), extent.start - begin)

    for number, (extent, x) in enumerate(run):
        if bool(of(extent, x).any()):
            for earlier, other in run[:number]:
                taken.zero_()
                of(earlier, other).fill_(True)
                if bool(of(extent, x).any()):
                    return earlier.index, extent.index
        of(extent, x).fill_(True)
    return None
