"""What this rank steps in place of each parameter: all of one that it owns, its shard, or the plain one itself."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from shampoo.distributed.assignment import Burden, Loads, assign
from shampoo.distributed.exchange import Exchange, Member
from shampoo.distributed.layout import ShardLayout, is_dtensor, layout_of
from shampoo.distributed.shards import empty, fill, gradient_shard, own_shard, stand_in
from shampoo.hyperparameters import Hyperparameters
from shampoo.memory import costs

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor

T = TypeVar("T")
Groups = Sequence[tuple[Sequence[Tensor], Hyperparameters]]


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a DTensor parameter is stepped."""

    param: DTensor
    layout: ShardLayout
    owner: int | None
    """Number in the mesh, in row-major order, of the rank that steps it whole; None: every rank steps its shard."""
    here: Tensor | None
    """What this rank steps; None: nothing."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Where parameters that are to be added would be stepped."""

    placed: Mapping[Tensor, Placed]
    loads: Mapping[DeviceMesh, Loads]

    def here(self, params: Sequence[Tensor]) -> list[Tensor]:
        """What this rank would step in place of these parameters."""
        found = [self.placed[param].here if param in self.placed else param for param in params]
        return [tensor for tensor in found if tensor is not None]

    def working_bytes(self) -> int:
        """What a step needs beside the state: whole weights and gradients, and as much again for their buffers."""
        owned = [placed.here for placed in self.placed.values() if placed.owner is not None]
        return 4 * sum(tensor.numel() * tensor.dtype.itemsize for tensor in owned if tensor is not None)


class StandIns:
    """The tensors that this rank steps in place of DTensor parameters; plain parameters stand for themselves."""

    def __init__(self) -> None:
        self._placed: dict[Tensor, Placed] = {}
        self._loads: dict[DeviceMesh, Loads] = {}
        self._exchanges: dict[tuple[DeviceMesh, int | None], Exchange] = {}

    @property
    def shared_on(self) -> torch.device | None:
        """The device of the parameters that a step exchanges with other ranks; None: a step is not collective."""
        return next((exchange.device for exchange in self._exchanges.values()), None)

    def of(self, param: Tensor) -> Tensor | None:
        """What this rank steps in place of a parameter; None: another rank owns it."""
        placed = self._placed.get(param)
        return param if placed is None else placed.here

    def owner(self, param: Tensor) -> int | None:
        """Number in its mesh of the rank that steps a parameter whole; None where every rank steps what it holds."""
        placed = self._placed.get(param)
        return None if placed is None else placed.owner

    def shard_name(self, param: Tensor) -> str | None:
        """The name of the shard that this rank steps as if it were the parameter; None where it does not."""
        placed = self._placed.get(param)
        if placed is None or placed.owner is not None:
            return None
        return f"shard {placed.layout.shard} of {placed.layout.num_shards}"

    def plan(self, groups: Groups, owners: Mapping[Tensor, int | None] | None = None) -> Plan:
        """Where the DTensors of groups are to be stepped, beside what has been added; the same on every rank.

        Args:
            owners: of those parameters, where they have been settled before.

        Raises:
            ValueError: a layout is not supported.
        """
        found = [
            (number, h, param, layout_of(param, index=index))
            for number, (params, h) in enumerate(groups)
            for index, param in enumerate(params)
            if is_dtensor(param)
        ]
        whole = [entry for entry in found if entry[1].distributed != "local"]
        loads = {mesh: load.copy() for mesh, load in self._loads.items()}
        owner_of: dict[Tensor, int | None] = {}
        for mesh in dict.fromkeys(layout.mesh for _, _, _, layout in whole):
            load = loads.setdefault(mesh, Loads.none(mesh.size()))
            members = [(number, h, param) for number, h, param, layout in whole if layout.mesh == mesh]
            burdens = _burdens(members)
            if owners is None:
                settled: list[int] = assign(burdens, load)
            else:
                settled = [_settled(owners[param]) for _, _, param in members]
                for rank, burden in zip(settled, burdens, strict=True):
                    load.add(rank, burden)
            owner_of.update(zip((param for _, _, param in members), settled, strict=True))
        placed: dict[Tensor, Placed] = {}
        for _, _, param, layout in found:
            owner = owner_of.get(param)
            here: Tensor | None
            if owner is None:
                here = stand_in(layout.shard_shape(layout.shard), param)
            else:
                is_here = _coordinate(layout.mesh, owner) == tuple(layout.mesh.get_coordinate() or ())
                here = stand_in(layout.shape, param) if is_here else None
            placed[param] = Placed(param, layout, owner, here)
        return Plan(placed, loads)

    def adopt(self, plan: Plan) -> None:
        """Adds the parameters of a plan."""
        self._placed.update(plan.placed)
        self._loads.update(plan.loads)
        for placed in plan.placed.values():
            if placed.owner is None:
                continue
            mesh, shard_dim = placed.layout.mesh, placed.layout.shard_dim
            exchange = self._exchanges.setdefault((mesh, shard_dim), Exchange(mesh, shard_dim))
            row, place = exchange.row_and_place(_coordinate(mesh, placed.owner))
            exchange.add(Member(placed.param, placed.layout, row, place, placed.here))

    def require_gradients(self) -> None:
        """Checks the layouts of the gradients, before any rank waits for another.

        Raises:
            RuntimeError: one does not fit its parameter.
        """
        for placed in self._placed.values():
            gradient_shard(placed.param)

    @contextmanager
    def filled(self) -> Iterator[None]:
        """Within it the stand-ins hold weights and gradients; collective where a parameter has an owner."""
        if not self._placed:
            yield
            return
        try:
            for exchange in self._exchanges.values():
                exchange.collect()
            for placed in self._placed.values():
                if placed.owner is None and placed.here is not None:
                    fill(placed.here, own_shard(placed.param), gradient_shard(placed.param))
            yield
        finally:
            for placed in self._placed.values():
                if placed.here is not None:
                    empty(placed.here)

    def hand_back(self, report: Tensor) -> Tensor:
        """Brings what the owners have stepped into the parameters of all ranks; collective.

        Args:
            report: int64 scalar on the parameters' device.

        Returns:
            The largest report of all ranks, likewise.
        """
        return torch.stack([exchange.hand_back(report).max() for exchange in self._exchanges.values()]).max()

    def of_all_ranks(self, found: Mapping[Tensor, T]) -> list[T]:
        """What all ranks have found for the tensors that they step, given what this one has; collective.

        Once for each parameter, or, where every rank steps its shard, for each shard.
        """
        stand_ins = {placed.here for placed in self._placed.values() if placed.here is not None}
        everything = [found[param] for param in found if param not in stand_ins]
        for mesh in dict.fromkeys(placed.layout.mesh for placed in self._placed.values()):
            own: list[tuple[int, int, T]] = []
            for number, placed in enumerate(self._placed.values()):
                if placed.layout.mesh == mesh and placed.here is not None:
                    own.append((number, placed.layout.shard, found[placed.here]))
            everyones = {(number, shard): x for number, shard, x in _over_mesh(mesh, own)}
            # A replica's shard is the same shard; a parameter with an owner has been found by that one alone.
            everything.extend(everyones.values())
        return everything


def _over_mesh(mesh: DeviceMesh, own: list[T]) -> list[T]:
    """What all ranks of a mesh have, by one collective for each of its dimensions."""
    for dim in range(mesh.ndim):
        gathered: list[list[T]] = [[] for _ in range(mesh.size(dim))]
        dist.all_gather_object(gathered, own, group=mesh.get_group(dim))
        own = list(itertools.chain.from_iterable(gathered))
    return own


def _burdens(members: Sequence[tuple[int, Hyperparameters, Tensor]]) -> list[Burden]:
    by_group: dict[int, tuple[Hyperparameters, list[Tensor]]] = {}
    for number, h, param in members:
        by_group.setdefault(number, (h, []))[1].append(param)
    return [
        Burden((number, param.shape, param.dtype), cost.operations_per_step, cost.state_bytes)
        for number, (h, params) in by_group.items()
        for param, cost in costs(params, h)
    ]


def _settled(owner: int | None) -> int:
    assert owner is not None
    return owner


def _coordinate(mesh: DeviceMesh, number: int) -> tuple[int, ...]:
    """The coordinates in the mesh of the rank with this number, in row-major order."""
    sizes = [mesh.size(dim) for dim in range(mesh.ndim)]
    return tuple(number // math.prod(sizes[dim + 1 :]) % size for dim, size in enumerate(sizes))
