"""The return path: owners send back new weights, or, in a lower precision than that of the weights, their change.

A change is sent in units of its largest element, so it fits even into float16. Every rank, including the owner, adds
what was sent, so replicas stay equal bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from shampoo.distributed.boxes import OwnedPart, wire_views
from shampoo.distributed.collectives import copy_all
from shampoo.distributed.shards import own_shard
from shampoo.torch_internals import foreach_add_

Spec = tuple[tuple[int, ...], torch.dtype]


class ReturnPath:
    """The return path of an exchange's parts."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._before: dict[Tensor, Tensor] = {}

    def is_change(self, part: OwnedPart) -> bool:
        """True if the weights' change is sent."""
        # By default weights are sent in float32, and float64 weights are then sent unchanged.
        return self._dtype.itemsize < min(torch.float32.itemsize, part.param.dtype.itemsize)

    def specs(self, parts: Sequence[OwnedPart], shard: int) -> list[Spec]:
        """Specification of the data that an owner sends to a shard: elements, the unit of each part's change, and a
        report."""
        elements: list[Spec] = [
            ((part.numel_of(shard),), self._dtype if self.is_change(part) else part.param.dtype) for part in parts
        ]
        return [*elements, ((len(parts) if self._has_changes(parts) else 0,), torch.float64), ((), torch.int64)]

    def remember(self, parts: Sequence[OwnedPart]) -> None:
        """Keeps the weights from before the step, if their change is sent."""
        self._before = {
            part.placeholder: part.placeholder.detach().clone()
            for part in parts
            if part.placeholder is not None and self.is_change(part)
        }

    def changes(self, parts: Sequence[OwnedPart]) -> dict[Tensor, tuple[Tensor, Tensor]]:
        """The change of each placeholder in its unit, and the unit, a float64 scalar."""
        found: dict[Tensor, tuple[Tensor, Tensor]] = {}
        for part in parts:
            if part.placeholder is not None and part.placeholder in self._before:
                change = part.placeholder.detach() - self._before.pop(part.placeholder)
                largest = change.abs().max() if change.numel() > 0 else change.new_zeros(())
                unit = torch.where(largest > 0, largest, 1.0)
                found[part.placeholder] = change.div_(unit).to(self._dtype), unit.double()
        return found

    def write(
        self,
        parts: Sequence[OwnedPart],
        shard: int,
        views: Sequence[Tensor],
        changes: dict[Tensor, tuple[Tensor, Tensor]],
    ) -> None:
        """Writes the data for a shard into the views of its buffer."""
        targets: list[Tensor] = []
        sources: list[Tensor] = []
        units: list[Tensor] = []
        for part, view in zip(parts, views, strict=False):
            assert part.placeholder is not None
            tensor, unit = changes.get(part.placeholder, (part.placeholder.detach(), None))
            tensor = tensor.contiguous()
            found = part.boxes(shard)
            targets.extend(wire_views(view, found))
            sources.extend(box.of_owner(tensor) for box in found)
            units.append(torch.ones((), dtype=torch.float64, device=view.device) if unit is None else unit)
        copy_all(targets, sources)
        if len(views[-2]) > 0:
            torch.stack(units, out=views[-2])

    def read(self, sent: Sequence[tuple[OwnedPart, Sequence[Tensor], int]], shard: int) -> None:
        """Writes the received data into this rank's shards. `sent` has the parts, the views of their owner's buffer,
        and their number in it."""
        targets: list[Tensor] = []
        sources: list[Tensor] = []
        copies: dict[Tensor, tuple[Tensor, Tensor]] = {}
        for part, views, number in sent:
            local = own_shard(part.param)
            if not local.is_contiguous():
                if part.param not in copies:
                    copies[part.param] = local, local.contiguous()
                local = copies[part.param][1]
            found = part.boxes(shard)
            of_shard = [box.of_shard(local) for box in found]
            if self.is_change(part):
                change = wire_views(views[number].to(part.param.dtype) * views[-2][number].to(part.param.dtype), found)
                if found:
                    foreach_add_(of_shard, change)
            else:
                targets.extend(of_shard)
                sources.extend(wire_views(views[number], found))
        copy_all(targets, sources)
        for local, contiguous in copies.values():
            local.copy_(contiguous)

    def _has_changes(self, parts: Sequence[OwnedPart]) -> bool:
        return any(self.is_change(part) for part in parts)
