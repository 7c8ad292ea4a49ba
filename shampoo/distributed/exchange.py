"""Bringing whole parameters and gradients to their owners, and new weights back to all ranks of a mesh.

The ranks of a mesh that differ only in the dimension that cuts the parameters hold one copy of the model between them:
a row. A parameter's owner is one rank of one row. A step takes these collectives, of flat buffers for all parameters:

    collect      all-to-all within each row: every rank sends its rows of weights and gradients to their owners
    hand back    all-to-all within each row: owners send each rank its rows of the new weights;
                 then, where the mesh has replicas, an all-gather of those rows over each dimension of replicas

What is sent depends on shapes alone and never on which gradients there are, so no rank waits for one that has less to
do. Weights travel with the gradients instead of being kept by the owner, because a copy would miss what is done to the
parameters between steps (a checkpoint, averaged weights swapped in).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor

from shampoo import weights
from shampoo.distributed.flat import FlatLayout, buffer_of, copy_all, pieces_of
from shampoo.distributed.layout import ShardLayout
from shampoo.distributed.shards import fill, gradient_shard, own_shard

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor

Row = tuple[int, ...]
"""Coordinates in the mesh, without the dimension that cuts the parameters."""


@dataclass(frozen=True, slots=True)
class Member:
    """A parameter of an exchange."""

    param: DTensor
    layout: ShardLayout
    row: Row
    """The owner's row, and its place there."""
    place: int
    whole: Tensor | None
    """The stand-in for the whole parameter, on its owner."""


class Exchange:
    """The parameters of one mesh that are cut over the same dimension of it; `collect` and `hand_back` are collective.

    Raises:
        RuntimeError: a collective fails; the message holds the rank and what it was for.
    """

    def __init__(self, mesh: DeviceMesh, shard_dim: int | None) -> None:
        coordinate = mesh.get_coordinate()
        assert coordinate is not None  # `layout_of` has looked
        self._mesh = mesh
        self._shard_dim = shard_dim
        self._num_shards = 1 if shard_dim is None else mesh.size(shard_dim)
        self._other_dims = [dim for dim in range(mesh.ndim) if dim != shard_dim]
        self._row, self._place = self.row_and_place(coordinate)
        self._owned: dict[tuple[Row, int], list[Member]] = {}
        self._layouts: dict[tuple[object, ...], FlatLayout] = {}
        self.device: torch.device
        """Of the shards."""

    def row_and_place(self, coordinate: Sequence[int]) -> tuple[Row, int]:
        """Those of the rank with these coordinates in the mesh."""
        place = 0 if self._shard_dim is None else coordinate[self._shard_dim]
        return tuple(coordinate[dim] for dim in self._other_dims), place

    def add(self, member: Member) -> None:
        """Takes in a parameter."""
        self.device = own_shard(member.param).device
        self._owned.setdefault((member.row, member.place), []).append(member)
        self._layouts.clear()

    def collect(self) -> None:
        """Gives the parameters that this rank owns their whole weights and gradients.

        One that has no gradient on any rank gets none; where only some ranks lack it, their rows count as zero. Where
        the host cannot read what the other ranks have without waiting for the device, it goes by its own.
        """
        own = self._members(self._row, self._place)
        if self._num_shards == 1:
            for member in own:
                assert member.whole is not None
                fill(member.whole, own_shard(member.param), gradient_shard(member.param))
            return
        ways_out = [self._way_in(place, self._place) for place in range(self._num_shards)]
        ways_in = [self._way_in(self._place, shard) for shard in range(self._num_shards)]
        outgoing, incoming = buffer_of(ways_out, self.device), buffer_of(ways_in, self.device)
        for place, views in enumerate(pieces_of(outgoing, ways_out)):
            self._write_shards(self._members(self._row, place), views)
        self._all_to_all("the collection of gradients", incoming, outgoing, ways_in, ways_out)
        del outgoing
        self._assemble(own, pieces_of(incoming, ways_in))

    def hand_back(self, report: Tensor) -> Tensor:
        """Writes the new weights of all parameters into their shards.

        Args:
            report: int64 scalar.

        Returns:
            The reports of all ranks, (number of ranks,), int64.
        """
        own = self._members(self._row, self._place)
        rows = self._ways_back(self._row, self._place)
        incoming = buffer_of(rows, self.device)
        if self._num_shards == 1:
            self._write_rows(own, 0, pieces_of(incoming, rows)[0], report)
        else:
            ways_out = [self._way_back(self._row, self._place, shard) for shard in range(self._num_shards)]
            outgoing = buffer_of(ways_out, self.device)
            for shard, views in enumerate(pieces_of(outgoing, ways_out)):
                self._write_rows(own, shard, views, report)
            self._all_to_all("the return of weights", incoming, outgoing, rows, ways_out)
        return self._read_rows(self._over_replicas(incoming))

    def _members(self, row: Row, place: int) -> list[Member]:
        return self._owned.get((row, place), [])

    def _way_in(self, place: int, shard: int) -> FlatLayout:
        """What the owner in a place of this row gets of a shard: weights, gradients, and, where the host can read them,
        whether there are gradients."""
        members = self._members(self._row, place)

        def build() -> FlatLayout:
            shards = [(member.layout.shard_shape(shard), member.param.dtype) for member in members]
            has_flags = self.device.type in weights.READABLE_DEVICES
            return FlatLayout([*shards, *shards, *([((len(members),), torch.bool)] if has_flags else [])])

        return self._cached(("in", place, shard), build)

    def _way_back(self, row: Row, place: int, shard: int) -> FlatLayout:
        """What an owner sends to a shard of its row: weights, and its report."""
        members = self._members(row, place)

        def build() -> FlatLayout:
            shards = [(member.layout.shard_shape(shard), member.param.dtype) for member in members]
            return FlatLayout([*shards, ((), torch.int64)])

        return self._cached(("back", row, place, shard), build)

    def _ways_back(self, row: Row, shard: int) -> list[FlatLayout]:
        return [self._way_back(row, place, shard) for place in range(self._num_shards)]

    def _cached(self, key: tuple[object, ...], build: Callable[[], FlatLayout]) -> FlatLayout:
        if key not in self._layouts:
            self._layouts[key] = build()
        return self._layouts[key]

    def _write_shards(self, members: Sequence[Member], views: Sequence[Tensor]) -> None:
        num = len(members)
        gradients = [gradient_shard(member.param) for member in members]
        copy_all(views[:num], [own_shard(member.param) for member in members])
        present = [(view, x) for view, x in zip(views[num : 2 * num], gradients, strict=True) if x is not None]
        copy_all([view for view, _ in present], [x for _, x in present])
        for view, x in zip(views[num : 2 * num], gradients, strict=True):
            if x is None:
                view.zero_()
        for flags in views[2 * num :]:
            flags.copy_(torch.tensor([x is not None for x in gradients], dtype=torch.bool))

    def _assemble(self, members: Sequence[Member], by_shard: Sequence[Sequence[Tensor]]) -> None:
        num = len(members)
        has_gradient = [member.param.grad is not None for member in members]
        flags = [views[2 * num] for views in by_shard if len(views) > 2 * num]
        if flags:
            has_gradient = torch.stack(flags).any(dim=0).tolist()
        targets: list[Tensor] = []
        sources: list[Tensor] = []
        for number, member in enumerate(members):
            assert member.whole is not None
            like = by_shard[0][number]
            values = like.new_empty(member.layout.shape)
            gradient = torch.empty_like(values) if has_gradient[number] else None
            fill(member.whole, values, gradient)
            for shard, views in enumerate(by_shard):
                rows = slice(*member.layout.rows(shard))
                targets.append(values[rows])
                sources.append(views[number])
                if gradient is not None:
                    targets.append(gradient[rows])
                    sources.append(views[num + number])
        copy_all(targets, sources)

    def _write_rows(self, members: Sequence[Member], shard: int, views: Sequence[Tensor], report: Tensor) -> None:
        sources: list[Tensor] = []
        for member in members:
            assert member.whole is not None
            is_cut = member.layout.shard_dim is not None
            sources.append(member.whole[slice(*member.layout.rows(shard))] if is_cut else member.whole)
        copy_all(views, [*sources, report])

    def _over_replicas(self, own: Tensor) -> dict[Row, Tensor]:
        """The buffers of rows like this rank's of all rows of the mesh, given its own."""
        replicas = [dim for dim in self._other_dims if self._mesh.size(dim) > 1]
        if not replicas:
            return {self._row: own}
        rows = list(itertools.product(*(range(self._mesh.size(dim)) for dim in self._other_dims)))
        longest = max(sum(way.num_bytes for way in self._ways_back(row, self._place)) for row in rows)
        buffer = torch.nn.functional.pad(own, (0, longest - own.numel()))
        for dim in replicas:
            gathered = buffer.new_empty(self._mesh.size(dim) * buffer.numel())
            self._all_gather("the return of weights to replicas", gathered, buffer, dim)
            buffer = gathered
        by_row: dict[Row, Tensor] = {}
        for row, at in zip(rows, map(functools.partial(self._number_of, replicas), rows), strict=True):
            by_row[row] = buffer[at * longest : (at + 1) * longest]
        return by_row

    def _number_of(self, replicas: Sequence[int], row: Row) -> int:
        """Position of a row after the gathers over these dimensions, the last of which is the outermost."""
        number = 0
        for dim in reversed(replicas):
            number = number * self._mesh.size(dim) + row[self._other_dims.index(dim)]
        return number

    def _read_rows(self, by_row: dict[Row, Tensor]) -> Tensor:
        targets: list[Tensor] = []
        sources: list[Tensor] = []
        reports: list[Tensor] = []
        for row, buffer in by_row.items():
            for place, views in enumerate(pieces_of(buffer, self._ways_back(row, self._place))):
                reports.append(views[-1])
                # Without a cut the owner has stepped its parameters themselves.
                if self._num_shards > 1 or row != self._row:
                    targets.extend(own_shard(member.param) for member in self._members(row, place))
                    sources.extend(views[:-1])
        copy_all(targets, sources)
        return torch.stack(reports)

    def _all_to_all(
        self,
        purpose: str,
        incoming: Tensor,
        outgoing: Tensor,
        ways_in: Sequence[FlatLayout],
        ways_out: Sequence[FlatLayout],
    ) -> None:
        assert self._shard_dim is not None
        sizes = [way.num_bytes for way in ways_in], [way.num_bytes for way in ways_out]
        group = self._mesh.get_group(self._shard_dim)
        self._named(purpose, lambda: dist.all_to_all_single(incoming, outgoing, *sizes, group=group))

    def _all_gather(self, purpose: str, gathered: Tensor, own: Tensor, dim: int) -> None:
        # Newer releases of torch warn of the older name.
        all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        self._named(purpose, lambda: all_gather(gathered, own, group=self._mesh.get_group(dim)))

    def _named(self, purpose: str, collective: Callable[[], object]) -> None:
        try:
            collective()
        except RuntimeError as error:
            raise RuntimeError(f"rank {dist.get_rank()}: {purpose} over {self._mesh} failed: {error}") from error
