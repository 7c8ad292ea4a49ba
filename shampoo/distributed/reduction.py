"""Averaging the gradients of replicas while they are sent to the owners: a reduce-scatter instead of an all-reduce.

In a ring it sends (N − 1)/N of the gradients' bytes, half as much as an all-reduce. With the gather of new weights, a
step of N replicas then sends two thirds of the bytes that it sends with an all-reduce.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from shampoo.distributed.boxes import OwnedPart, wire_views
from shampoo.distributed.collectives import UnderWay, all_reduce, copy_all, reduce_scatter
from shampoo.distributed.shards import gradient_shard
from shampoo.distributed.topology import Topology
from shampoo.state.buckets import state_dtype


@dataclass(frozen=True, slots=True)
class Reduced:
    """Averaged gradients of the parts that a rank owns."""

    gradients: Mapping[Tensor, Tensor]
    """The averaged gradient for each placeholder, in its shape; no entry if no rank has a gradient."""
    norms: Mapping[Tensor, Tensor]
    """Norms of the whole parameters' gradients, scalars in the precision of the state, by placeholder."""


class Reduction:
    """Sends the replicas' own gradients to the owners of their parts; `start` and `finish` are collective."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._under_way: tuple[UnderWay, Tensor, Tensor] | None = None

    def start(self, by_owner: Sequence[Sequence[OwnedPart]], device: torch.device) -> None:
        """Starts to sum gradients, given the parts of each rank."""
        dtype = reduce(torch.promote_types, [part.param.dtype for parts in by_owner for part in parts], torch.bfloat16)
        longest = max(sum(part.numel for part in parts) for parts in by_owner)
        everything = torch.zeros(len(by_owner), longest, dtype=dtype, device=device)
        targets: list[Tensor] = []
        sources: list[Tensor] = []
        for segment, parts in zip(everything, by_owner, strict=True):
            at = 0
            for part in parts:
                gradient = gradient_shard(part.param)
                if gradient is not None:
                    gradient = gradient.contiguous()
                    found = part.boxes(0)
                    targets.extend(wire_views(segment[at : at + part.numel], found))
                    sources.extend(box.of_shard(gradient) for box in found)
                at += part.numel
        copy_all(targets, sources)
        has_gradient = [param.grad is not None for param in _params(by_owner)]
        present = torch.tensor(has_gradient, dtype=torch.float64, device="cpu").to(device)
        own = everything.new_empty(longest)
        purpose = f"the reduction of gradients over {self._topology.name}"
        self._under_way = reduce_scatter(purpose, own, everything.view(-1), self._topology.groups[0]), own, present

    def abandon(self) -> None:
        """Drops the collectives that are running, after an error."""
        self._under_way = None

    def finish(self, by_owner: Sequence[Sequence[OwnedPart]], own_number: int) -> Reduced:
        """The averages for this rank, which is the owner of this number."""
        assert self._under_way is not None
        under_way, own, present = self._under_way
        self._under_way = None
        under_way.wait()
        own.div_(len(by_owner))
        number_of = {param: number for number, param in enumerate(_params(by_owner))}
        squares = torch.zeros_like(present)
        gradients: dict[Tensor, Tensor] = {}
        at = 0
        for part in by_owner[own_number]:
            assert part.placeholder is not None
            values = own[at : at + part.numel].view(part.placeholder.shape).to(part.param.dtype)
            gradients[part.placeholder] = values
            at += part.numel
            norm = torch.linalg.vector_norm(values, dtype=state_dtype(values.dtype))
            squares[number_of[part.param]] += norm.square().double()
        counts = torch.stack([squares, present])
        all_reduce(f"the norms of gradients over {self._topology.name}", counts, self._topology.groups[0]).wait()
        # A rank's own gradients say nothing about those of others: the host has to wait for the answer.
        has_gradient = (counts[1] > 0).tolist()
        parts = [part for part in by_owner[own_number] if has_gradient[number_of[part.param]]]
        norms = {
            part.placeholder: counts[0, number_of[part.param]].to(state_dtype(part.param.dtype)).sqrt()
            for part in parts
            if part.placeholder is not None
        }
        return Reduced({tensor: gradients[tensor] for tensor in norms}, norms)


def _params(by_owner: Sequence[Sequence[OwnedPart]]) -> dict[Tensor, None]:
    return dict.fromkeys(part.param for parts in by_owner for part in parts)
