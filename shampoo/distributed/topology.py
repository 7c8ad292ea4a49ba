"""The ranks among which the work of parameters is divided: those of a device mesh, or a group of a process group."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch.distributed as dist

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

Replica = tuple[int, ...]
"""One copy of the model, given by the coordinates that its ranks have in common: all except that of the dimension that
cuts the parameters."""


@dataclass(frozen=True, slots=True)
class RankArray:
    """Ranks in an array of one or more dimensions, one of which may cut the parameters; over the others they are
    replicated. Ranks that differ only in the dimension that cuts hold one copy of the model together, a replica.

    Ranks are numbered in row-major order of the array, and so are replicas.
    """

    sizes: tuple[int, ...]
    shard_dim: int | None
    """The dimension that cuts the parameters; None: every rank holds all of them."""

    @property
    def is_cut(self) -> bool:
        return self.shard_dim is not None

    @property
    def num_ranks(self) -> int:
        return math.prod(self.sizes)

    @property
    def num_shards(self) -> int:
        return 1 if self.shard_dim is None else self.sizes[self.shard_dim]

    @property
    def num_replicas(self) -> int:
        return self.num_ranks // self.num_shards

    @property
    def replica_dims(self) -> tuple[int, ...]:
        """The dimensions that do not cut, of whatever size."""
        return tuple(dim for dim in range(len(self.sizes)) if dim != self.shard_dim)

    def replica_and_shard(self, number: int) -> tuple[Replica, int]:
        """The replica that a rank is part of, and the number of the shard that it holds."""
        coordinate = [number // math.prod(self.sizes[dim + 1 :]) % size for dim, size in enumerate(self.sizes)]
        shard = 0 if self.shard_dim is None else coordinate[self.shard_dim]
        return tuple(coordinate[dim] for dim in self.replica_dims), shard

    def number_of(self, replica: int, shard: int) -> int:
        """The number of the rank that holds a shard of the replica of this number."""
        coordinate = [0] * len(self.sizes)
        for dim in reversed(self.replica_dims):
            replica, coordinate[dim] = divmod(replica, self.sizes[dim])
        if self.shard_dim is not None:
            coordinate[self.shard_dim] = shard
        return self.at(coordinate)

    def at(self, coordinate: Sequence[int]) -> int:
        """The number of the rank with these coordinates."""
        number = 0
        for size, index in zip(self.sizes, coordinate, strict=True):
            number = number * size + index
        return number


@dataclass(frozen=True, slots=True)
class Topology:
    """An array of ranks, seen from one of them."""

    ranks: Hashable
    """Equal for the same ranks, whichever dimension cuts."""
    array: RankArray
    number: int
    """The number of this rank."""
    groups: tuple[dist.ProcessGroup, ...] = field(compare=False)
    """The group of each dimension: the ranks that differ from this one only in it. Equal meshes have separate groups,
    and a tensor on one mesh may name the other, because torch caches layouts by equality."""
    name: str

    @property
    def replica(self) -> Replica:
        return self.array.replica_and_shard(self.number)[0]

    @property
    def shard(self) -> int:
        """The number of the shard that this rank holds."""
        return self.array.replica_and_shard(self.number)[1]


def of_mesh(mesh: DeviceMesh, shard_dim: int | None) -> Topology:
    """The ranks of a mesh to which this rank belongs."""
    coordinate = mesh.get_coordinate()
    assert coordinate is not None
    array = RankArray(tuple(mesh.size(dim) for dim in range(mesh.ndim)), shard_dim)
    groups = tuple(mesh.get_group(dim) for dim in range(mesh.ndim))
    return Topology(mesh, array, array.at(coordinate), groups, str(mesh))


_subgroups: dict[tuple[dist.ProcessGroup, int], dist.ProcessGroup] = {}
"""The part of each process group to which this rank belongs, by the group and the number of ranks in a part. Never
freed."""


def world_size() -> int:
    """Ranks of the default process group, 1 without one."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def world_rank() -> int:
    """This process's rank in the default process group, 0 without one."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def of_replicas(num_ranks: int) -> Topology:
    """Consecutive ranks of the default process group, each of which holds all parameters; every rank of it makes the
    same call.

    Raises:
        ValueError: the process group can't be divided into groups of this size.
    """
    world = dist.group.WORLD
    assert world is not None
    size = world.size()
    if num_ranks < 1 or size % num_ranks != 0:
        raise ValueError(f"num_ranks_per_group={num_ranks} must divide the number of ranks, {size}")
    group = world
    if num_ranks != size:
        for other, number in list(_subgroups):
            if other is not world:  # it belongs to a process group that has been destroyed
                del _subgroups[other, number]
        if (world, num_ranks) not in _subgroups:
            found, _ = dist.new_subgroups(group_size=num_ranks)  # type: ignore[no-untyped-call, unused-ignore]
            _subgroups[world, num_ranks] = found
        group = _subgroups[world, num_ranks]
    return Topology(group, RankArray((num_ranks,), None), world.rank() % num_ranks, (group,), f"{num_ranks} replicas")
