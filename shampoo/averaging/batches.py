"""Parameters and their averaging state, cut and collected into the lists that one `torch._foreach` call takes.

Averages are taken element by element, so each rank averages its local part of a sharded tensor (DTensor).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from shampoo.distributed.shards import local_part
from shampoo.state.buckets import state_dtype
from shampoo.torch_internals import foreach_copy_

_CPU_NUMEL = 2**16
"""Elements of a piece on the CPU, by judgement: a piece and its averages stay in the cache from one operation to the
next, and temporaries stay small."""
_OTHER_NUMEL = 2**25
"""Elements of a list on other devices, by judgement. There launches matter and tensors stay whole; 128 MiB of float32
bound the memory that a call needs in addition to its operands."""


@dataclass(slots=True)
class Batch:
    """Parameters of one device and dtype, or flat pieces of them, which are views; and whose they are.

    For a sharded parameter, `params` has the local part, and `owners` the parameter itself.
    """

    states: Mapping[Tensor, dict[str, Any]]
    params: list[Tensor] = field(default_factory=list)
    owners: list[Tensor] = field(default_factory=list)
    ranges: list[tuple[int, int] | None] = field(default_factory=list)

    def of_state(self, name: str) -> list[Tensor]:
        """This tensor of the averaging state for every piece."""
        tensors = (local_part(self.states[owner][name]) for owner in self.owners)
        return [_piece(tensor, part) for tensor, part in zip(tensors, self.ranges, strict=True)]

    @property
    def keeps_x(self) -> bool:
        """Their dtype is below float32, so that the average cannot be recovered from them."""
        return state_dtype(self.params[0].dtype) != self.params[0].dtype


@torch.no_grad()
def batches(params: Iterable[Tensor], states: Mapping[Tensor, dict[str, Any]]) -> list[Batch]:
    """Cuts the parameters into batches of one device and dtype and of bounded size.

    Only contiguous tensors on the CPU are cut (state has its parameter's strides); any other may exceed the bound.
    """
    finished: list[Batch] = []
    unfinished: dict[tuple[torch.device, torch.dtype], tuple[Batch, int]] = {}
    for param in params:
        key = (param.device, param.dtype)
        limit = _CPU_NUMEL if param.device.type == "cpu" else _OTHER_NUMEL
        local = local_part(param)
        for part, numel in _parts(local, limit):
            batch, total = unfinished.pop(key, (Batch(states), 0))
            if batch.params and total + numel > limit:
                finished.append(batch)
                batch, total = Batch(states), 0
            batch.params.append(_piece(local, part))
            batch.owners.append(param)
            batch.ranges.append(part)
            unfinished[key] = (batch, total + numel)
    return finished + [batch for batch, _ in unfinished.values()]


def upcast(tensors: list[Tensor], like: list[Tensor]) -> list[Tensor]:
    """The tensors in the dtype of the second list: themselves if they have it, else copies."""
    if tensors[0].dtype == like[0].dtype:
        return tensors
    duplicates = [torch.empty_like(tensor) for tensor in like]
    foreach_copy_(duplicates, tensors)
    return duplicates


def copies(tensors: list[Tensor]) -> list[Tensor]:
    """Tensors of their own memory with the same values and strides, which require no gradient."""
    duplicates = [torch.empty_like(tensor, requires_grad=False) for tensor in tensors]
    foreach_copy_([local_part(tensor) for tensor in duplicates], [local_part(tensor) for tensor in tensors])
    return duplicates


def _parts(param: Tensor, limit: int) -> Iterator[tuple[tuple[int, int] | None, int]]:
    """(first, last + 1) of each flat piece, None for the whole tensor, and its number of elements."""
    numel = param.numel()
    # The local memory of a subclass may not be flat.
    plain = type(param) is Tensor or type(param) is torch.nn.Parameter
    if numel <= limit or param.device.type != "cpu" or not plain or not param.is_contiguous():
        if numel > 0:
            yield None, numel
        return
    for start in range(0, numel, limit):
        stop = min(start + limit, numel)
        yield (start, stop), stop - start


def _piece(tensor: Tensor, part: tuple[int, int] | None) -> Tensor:
    return tensor if part is None else tensor.view(-1)[part[0] : part[1]]
