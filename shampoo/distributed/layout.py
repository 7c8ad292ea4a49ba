"""The layout of a parameter on the ranks, if the optimizer supports it.

Supported: plain tensors, of which every rank holds all; and DTensors that are cut along their first dimension over at
most one dimension of the mesh, and replicated over the others. That is FSDP2 (`fully_shard`), HSDP on a two-dimensional
mesh, and SimpleFSDP's parameters.

Importing DTensor takes half a second, so nothing here imports it: if nobody has, no tensor is a DTensor.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeGuard

from shampoo.distributed.topology import Topology, of_mesh

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def is_dtensor(tensor: object) -> TypeGuard[DTensor]:
    """True for a DTensor; checked without importing its class."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def rows_of_shard(length: int, num_shards: int, shard: int) -> tuple[int, int]:
    """First row and last row + 1 of a shard, cut as `torch.chunk` does: the last ones may be short or empty."""
    most = math.ceil(length / num_shards)
    return min(length, shard * most), min(length, (shard + 1) * most)


@dataclass(frozen=True, slots=True)
class ShardLayout:
    """The rows of a parameter over ranks."""

    topology: Topology
    shape: tuple[int, ...]
    """Shape of the whole parameter."""

    @property
    def is_cut(self) -> bool:
        return self.topology.array.is_cut

    @property
    def num_shards(self) -> int:
        return self.topology.array.num_shards

    @property
    def shard(self) -> int:
        """Number of the shard that this rank holds."""
        return self.topology.shard

    def rows(self, shard: int) -> tuple[int, int]:
        """First row and last row + 1 of a shard."""
        if not self.is_cut:
            return 0, self.shape[0] if self.shape else 1
        return rows_of_shard(self.shape[0], self.num_shards, shard)

    def span(self, shard: int) -> tuple[int, int]:
        """First element and last element + 1 of a shard, in row-major order."""
        row = math.prod(self.shape[1:])
        start, stop = self.rows(shard)
        return start * row, stop * row

    def shard_shape(self, shard: int) -> tuple[int, ...]:
        """The shape of a shard."""
        if not self.is_cut:
            return self.shape
        start, stop = self.rows(shard)
        return (stop - start, *self.shape[1:])


def layout_of(param: DTensor, *, index: int) -> ShardLayout:
    """The layout of a DTensor parameter, `index` in its group for the message.

    Raises:
        ValueError: it is not supported; the message holds placements and mesh.
    """
    from torch.distributed.tensor import Replicate, Shard

    mesh, placements = param.device_mesh, param.placements
    where = f"parameter {index} of shape {tuple(param.shape)} has placements {placements} on {mesh}"
    # Checked by type: a strided shard (FSDP over tensor parallelism) has other rows.
    unsupported = [p for p in placements if type(p) is not Replicate and not (type(p) is Shard and p.dim == 0)]
    if unsupported:
        raise ValueError(
            f"{where}: {unsupported[0]} is not supported, only Shard(0) over one dimension of the mesh and Replicate() "
            "over the others (FSDP2, HSDP, SimpleFSDP); of tensor-parallel parameters no rank holds whole rows"
        )
    sharding = [dim for dim, placement in enumerate(placements) if type(placement) is Shard]
    if len(sharding) > 1:
        raise ValueError(f"{where}: only one dimension of the mesh may cut it, not {len(sharding)}; flatten the mesh")
    if mesh.get_coordinate() is None:
        raise ValueError(f"{where}, to which this rank does not belong")
    layout = ShardLayout(of_mesh(mesh, sharding[0] if sharding else None), tuple(param.shape))
    found = tuple(param.to_local().shape)
    if found != layout.shard_shape(layout.shard):
        raise ValueError(f"{where}: this rank holds {found}, expected {layout.shard_shape(layout.shard)}")
    return layout
