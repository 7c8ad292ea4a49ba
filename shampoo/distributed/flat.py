"""Tensors of any shapes and dtypes in one flat buffer of bytes, so that one collective moves them all."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from shampoo.torch_internals import foreach_copy_

_ALIGNMENT = 16
"""Bytes: of the largest dtype, 8, and of the loads of vector units."""


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
