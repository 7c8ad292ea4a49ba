"""The exchange: it brings parameters and gradients to the ranks that own them, and new weights back to all ranks.

Ranks of an array that differ only in the dimension that cuts the parameters hold one copy of the model together: a
replica. Each part of a parameter is owned by one rank of one replica. A step runs these collectives, with flat buffers
for all parameters of the exchange:

    collect      where parameters are cut, an all-to-all within each replica: every rank sends its rows of weights
                 and gradients to the owners
    hand back    where parameters are cut, an all-to-all within each replica: owners send each rank its rows of the
                 new weights; then an all-gather over each dimension of replicas

The data that is sent depends only on shapes, never on which gradients there are, so no rank waits for one with less to
do. Weights are sent with the gradients instead of being kept by the owner, because a copy would miss changes to the
parameters between steps (a loaded checkpoint, averaged weights swapped in).

Whether a gradient is finite is decided for the whole parameter, of which an owner may see only some blocks. So every
rank sends the norms of its shards; where there are no shards, it computes the norm of the whole gradient.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from shampoo.distributed.boxes import OwnedPart, wire_views
from shampoo.distributed.collectives import FlatLayout, UnderWay, all_gather, all_to_all, buffer_of, copy_all, pieces_of
from shampoo.distributed.reduction import Reduction
from shampoo.distributed.return_path import ReturnPath
from shampoo.distributed.shards import fill, gradient_shard, own_shard
from shampoo.distributed.topology import Replica, Topology
from shampoo.state import buckets
from shampoo.state.buckets import state_dtype
from shampoo.torch_internals import foreach_norm

_NO_GRADIENT = -1.0
"""A number in place of a norm, which is never negative: it means that there is no gradient."""


class Exchange:
    """Parts of parameters with the same layout on the same ranks; starting and finishing an exchange is collective.

    Raises:
        RuntimeError: a collective fails; the message holds the rank and the purpose.
    """

    def __init__(self, topology: Topology, communication_dtype: torch.dtype, *, reduces: bool) -> None:
        """`reduces`: gradients are each rank's own, and are averaged; for parameters that are not cut."""
        self._topology = topology
        self._reduction = Reduction(topology) if reduces else None
        self._array = topology.array
        self._replica = topology.replica
        self._shard = topology.shard
        self._return_path = ReturnPath(communication_dtype)
        self._owned: dict[tuple[Replica, int], list[OwnedPart]] = {}
        self._layouts: dict[tuple[object, ...], FlatLayout] = {}
        self._collecting: tuple[UnderWay, Tensor] | None = None
        self._handing: tuple[UnderWay | None, Tensor] | None = None
        self.device: torch.device
        """The device of the shards."""
        self.norms: dict[Tensor, Tensor] = {}
        """Norms of the whole gradients, by the placeholders of this rank that have one; in the state's precision."""

    def add(self, part: OwnedPart) -> None:
        """Adds a part of a parameter."""
        self.device = own_shard(part.param).device
        self._owned.setdefault((part.owner_replica, part.owner_shard), []).append(part)
        self._layouts.clear()

    def start_collecting(self) -> None:
        """Starts to send weights and gradients to their owners."""
        if self._reduction is not None:
            self._reduction.start(self._by_owner(), self.device)
        if not self._array.is_cut:
            return
        layouts_out = [self._collected_by(owner, self._shard) for owner in range(self._array.num_shards)]
        layouts_in = [self._collected_by(self._shard, shard) for shard in range(self._array.num_shards)]
        outgoing, incoming = buffer_of(layouts_out, self.device), buffer_of(layouts_in, self.device)
        norms = self._own_norms()
        for owner, views in enumerate(pieces_of(outgoing, layouts_out)):
            self._write_shards(self._parts(self._replica, owner), views, norms)
        self._collecting = (
            self._all_to_all("the collection of gradients", incoming, outgoing, layouts_in, layouts_out),
            incoming,
        )

    def finish_collecting(self, *, will_hand_back: bool) -> None:
        """Gives the placeholders of this rank their weights and gradients.

        A placeholder gets no gradient if no rank has one for its parameter; if only some ranks lack it, their rows
        count as zero. If the host would have to wait for the device to learn which gradients the other ranks have, it
        goes by its own ones; but for gradients that are reduced it waits.
        """
        self.norms = {}
        own = self._parts(self._replica, self._shard)
        if self._collecting is None:
            self._fill_from_own(own)
        else:
            under_way, incoming = self._collecting
            self._collecting = None
            under_way.wait()
            layouts = [self._collected_by(self._shard, shard) for shard in range(self._array.num_shards)]
            self._assemble(own, pieces_of(incoming, layouts))
        if will_hand_back:
            self._return_path.remember(own)

    def start_handing_back(self, report: Tensor) -> None:
        """Starts to send the new weights; the placeholders of this rank may change again at once.

        Args:
            report: int64 scalar.
        """
        own = self._parts(self._replica, self._shard)
        layouts_in = self._handed_back_to(self._replica, self._shard)
        changes = self._return_path.changes(own)
        if not self._array.is_cut:
            buffer = torch.empty(self._longest(), dtype=torch.uint8, device=self.device)
            self._write_new_weights(own, 0, pieces_of(buffer, layouts_in)[0], report, changes)
            self._handing = self._gather(self._replica_dims(), buffer)
            return
        incoming = buffer_of(layouts_in, self.device)
        layouts_out = [
            self._handed_back_by(self._replica, self._shard, shard) for shard in range(self._array.num_shards)
        ]
        outgoing = buffer_of(layouts_out, self.device)
        for shard, views in enumerate(pieces_of(outgoing, layouts_out)):
            self._write_new_weights(own, shard, views, report, changes)
        self._handing = self._all_to_all("the return of weights", incoming, outgoing, layouts_in, layouts_out), incoming

    def finish_handing_back(self) -> Tensor:
        """Writes the new weights of all parameters into the parts that this rank holds.

        Returns:
            The reports of all ranks, (number of ranks,), int64.
        """
        assert self._handing is not None
        under_way, buffer = self._handing
        self._handing = None
        if under_way is not None:
            under_way.wait()
        dims = self._replica_dims()
        gathered = 0 if self._array.is_cut else 1
        if self._array.is_cut and dims:
            padded = buffer.new_empty(self._longest())
            padded[: len(buffer)] = buffer
            buffer = padded
        for count in range(gathered, len(dims)):
            further, buffer = self._gather(dims[count:], buffer)
            if further is not None:
                further.wait()
        return self._read_new_weights(self._by_replica(dims, buffer))

    def abandon(self) -> None:
        """Drops the collectives that are running, after an error."""
        self._collecting = self._handing = None
        if self._reduction is not None:
            self._reduction.abandon()

    def _by_owner(self) -> list[list[OwnedPart]]:
        return [self._parts(*self._array.replica_and_shard(number)) for number in range(self._array.num_ranks)]

    def _parts(self, replica: Replica, shard: int) -> list[OwnedPart]:
        """The parts that are owned by the rank with this shard of a replica."""
        return self._owned.get((replica, shard), [])

    def _replica_dims(self) -> list[int]:
        return [dim for dim in self._array.replica_dims if self._array.sizes[dim] > 1]

    def _collected_by(self, owner: int, shard: int) -> FlatLayout:
        """Layout of the data that an owner, given by the number of its own shard, gets from a shard of this replica:
        weights, gradients, and norms."""
        parts = self._parts(self._replica, owner)

        def build() -> FlatLayout:
            elements = [((part.numel_of(shard),), part.param.dtype) for part in parts]
            return FlatLayout([*elements, *elements, ((len(parts),), torch.float64)])

        return self._cached(("collected", owner, shard), build)

    def _handed_back_by(self, replica: Replica, owner: int, shard: int) -> FlatLayout:
        """Layout of the data that an owner, given by the number of its own shard, sends to a shard of its replica:
        weights or their changes, and its report."""
        parts = self._parts(replica, owner)
        key = "handed back", replica, owner, shard
        return self._cached(key, lambda: FlatLayout(self._return_path.specs(parts, shard)))

    def _handed_back_to(self, replica: Replica, shard: int) -> list[FlatLayout]:
        """Layouts of the data that a shard of a replica gets from each owner of that replica."""
        return [self._handed_back_by(replica, owner, shard) for owner in range(self._array.num_shards)]

    def _longest(self) -> int:
        """Bytes of the longest buffer that any replica has for a shard with this rank's number."""
        of_each = (self._handed_back_to(replica, self._shard) for replica in self._replicas())
        return max(sum(layout.num_bytes for layout in layouts) for layouts in of_each)

    def _replicas(self) -> list[Replica]:
        return list(itertools.product(*(range(self._array.sizes[dim]) for dim in self._array.replica_dims)))

    def _cached(self, key: tuple[object, ...], build: Callable[[], FlatLayout]) -> FlatLayout:
        if key not in self._layouts:
            self._layouts[key] = build()
        return self._layouts[key]

    def _own_norms(self) -> dict[Tensor, Tensor]:
        """Norms of this rank's shards of the gradients, float64 scalars, by parameter that has one."""
        params = {part.param for parts in self._owned.values() for part in parts}
        return norms_of({param: gradient_shard(param) for param in params})

    def _write_shards(self, parts: Sequence[OwnedPart], views: Sequence[Tensor], norms: dict[Tensor, Tensor]) -> None:
        num = len(parts)
        targets: list[Tensor] = []
        sources: list[Tensor] = []
        for part, for_weights, for_gradient in zip(parts, views[:num], views[num : 2 * num], strict=True):
            found = part.boxes(self._shard)
            shard, gradient = own_shard(part.param).contiguous(), gradient_shard(part.param)
            targets.extend(wire_views(for_weights, found))
            sources.extend(box.of_shard(shard) for box in found)
            if gradient is None:
                for_gradient.zero_()
            else:
                gradient = gradient.contiguous()
                targets.extend(wire_views(for_gradient, found))
                sources.extend(box.of_shard(gradient) for box in found)
        copy_all(targets, sources)
        if parts:
            missing = views[-1].new_full((), _NO_GRADIENT)
            torch.stack([norms.get(part.param, missing) for part in parts], out=views[-1])

    def _assemble(self, parts: Sequence[OwnedPart], by_shard: Sequence[Sequence[Tensor]]) -> None:
        if not parts:
            return
        num = len(parts)
        norms = torch.stack([views[-1] for views in by_shard])
        if self.device.type in buckets.READABLE_DEVICES:
            has_gradient = (norms != _NO_GRADIENT).any(dim=0).tolist()
        else:
            has_gradient = [part.param.grad is not None for part in parts]
        norms = torch.where(norms == _NO_GRADIENT, 0.0, norms)
        targets: list[Tensor] = []
        sources: list[Tensor] = []
        for number, part in enumerate(parts):
            assert part.placeholder is not None
            values = by_shard[0][number].new_empty(part.placeholder.shape)
            gradient = torch.empty_like(values) if has_gradient[number] else None
            fill(part.placeholder, values, gradient)
            if gradient is not None:
                dtype = state_dtype(part.param.dtype)
                self.norms[part.placeholder] = norms[:, number].to(dtype).square().sum().sqrt()
            for shard, views in enumerate(by_shard):
                found = part.boxes(shard)
                targets.extend(box.of_owner(values) for box in found)
                sources.extend(wire_views(views[number], found))
                if gradient is not None:
                    targets.extend(box.of_owner(gradient) for box in found)
                    sources.extend(wire_views(views[num + number], found))
        copy_all(targets, sources)

    def _fill_from_own(self, parts: Sequence[OwnedPart]) -> None:
        """Fills placeholders if every rank holds all of the parameters and their gradients."""
        targets: list[Tensor] = []
        sources: list[Tensor] = []
        reduced = None if self._reduction is None else self._reduction.finish(self._by_owner(), self._topology.number)
        for part in parts:
            assert part.placeholder is not None
            shard = own_shard(part.param)
            gradient = gradient_shard(part.param) if reduced is None else reduced.gradients.get(part.placeholder)
            if part.is_whole and not self._return_path.is_change(part):
                fill(part.placeholder, shard, gradient)
                continue
            found = part.boxes(0)
            values, own_gradient = shard.new_empty(part.placeholder.shape), gradient
            shard = shard.contiguous()
            targets.extend(box.of_owner(values) for box in found)
            sources.extend(box.of_shard(shard) for box in found)
            if gradient is not None and reduced is None:
                own_gradient, gradient = gradient.new_empty(part.placeholder.shape), gradient.contiguous()
                targets.extend(box.of_owner(own_gradient) for box in found)
                sources.extend(box.of_shard(gradient) for box in found)
            fill(part.placeholder, values, own_gradient)
        copy_all(targets, sources)
        if reduced is not None:
            self.norms = dict(reduced.norms)
            return
        cut = [part for part in parts if not part.is_whole]
        norms = norms_of({part.param: gradient_shard(part.param) for part in cut})
        for part in cut:
            if part.param in norms:
                assert part.placeholder is not None
                self.norms[part.placeholder] = norms[part.param].to(state_dtype(part.param.dtype))

    def _write_new_weights(
        self,
        parts: Sequence[OwnedPart],
        shard: int,
        views: Sequence[Tensor],
        report: Tensor,
        changes: dict[Tensor, tuple[Tensor, Tensor]],
    ) -> None:
        self._return_path.write(parts, shard, views, changes)
        views[-1].copy_(report)

    def _gather(self, dims: Sequence[int], own: Tensor) -> tuple[UnderWay | None, Tensor]:
        """Starts to gather buffers of one length over the first of these dimensions, if there is one."""
        if not dims:
            return None, own
        gathered = own.new_empty(len(own) * self._array.sizes[dims[0]])
        return all_gather(
            "the return of weights to replicas" + self._where, gathered, own, self._topology.groups[dims[0]]
        ), gathered

    def _by_replica(self, dims: Sequence[int], buffer: Tensor) -> dict[Replica, Tensor]:
        """The buffers of all replicas, after the gathers over these dimensions."""
        if not dims:
            return {self._replica: buffer}
        longest = self._longest()
        number_of = functools.partial(self._number_of, dims)
        return {replica: buffer[number_of(replica) * longest :][:longest] for replica in self._replicas()}

    def _number_of(self, dims: Sequence[int], replica: Replica) -> int:
        """Position of a replica after the gathers over these dimensions, the last of which is the outermost."""
        number = 0
        for dim in reversed(dims):
            number = number * self._array.sizes[dim] + replica[self._array.replica_dims.index(dim)]
        return number

    def _read_new_weights(self, by_replica: dict[Replica, Tensor]) -> Tensor:
        reports: list[Tensor] = []
        everything: list[tuple[OwnedPart, Sequence[Tensor], int]] = []
        for replica, buffer in by_replica.items():
            for owner, views in enumerate(pieces_of(buffer, self._handed_back_to(replica, self._shard))):
                reports.append(views[-1])
                parts = self._parts(replica, owner)
                for number, part in enumerate(parts):
                    # A whole parameter that is not cut has been stepped in place.
                    is_own = not self._array.is_cut and replica == self._replica
                    if is_own and part.is_whole and not self._return_path.is_change(part):
                        # Its placeholder has a version counter of its own, so autograd would not notice the change.
                        torch.autograd.graph.increment_version(part.param)
                        continue
                    everything.append((part, views, number))
        self._return_path.read(everything, self._shard)
        return torch.stack(reports)

    @property
    def _where(self) -> str:
        return f" over {self._topology.name}"

    def _all_to_all(
        self,
        purpose: str,
        incoming: Tensor,
        outgoing: Tensor,
        layouts_in: Sequence[FlatLayout],
        layouts_out: Sequence[FlatLayout],
    ) -> UnderWay:
        assert self._array.shard_dim is not None
        sizes = [layout.num_bytes for layout in layouts_in], [layout.num_bytes for layout in layouts_out]
        return all_to_all(
            purpose + self._where, incoming, outgoing, *sizes, self._topology.groups[self._array.shard_dim]
        )


def norms_of(gradients: dict[Tensor, Tensor | None]) -> dict[Tensor, Tensor]:
    """Norms of tensors, computed in the precision of the state, float64 scalars; none for None."""
    by_dtype: dict[torch.dtype, list[Tensor]] = {}
    present = {param: gradient for param, gradient in gradients.items() if gradient is not None}
    for param in present:
        by_dtype.setdefault(param.dtype, []).append(param)
    found: dict[Tensor, Tensor] = {}
    for dtype, params in by_dtype.items():
        norms = foreach_norm([present[param] for param in params], 2, dtype=state_dtype(dtype))
        found.update(zip(params, torch.stack(norms).double().unbind(), strict=True))
    return found
