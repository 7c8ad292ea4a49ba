"""State, work and traffic of each of many ranks, from shapes alone: the optimizer's own choice of owners, but no
ranks."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import torch

from shampoo.cost import Cost, estimate
from shampoo.distributed.assignment import Loads
from shampoo.distributed.layout import rows_of_shard
from shampoo.distributed.ownership import Member, Owners, choose_group_size, costs_per_rank, owners_of
from shampoo.distributed.topology import RankArray
from shampoo.hyperparameters import DEFAULTS, Hyperparameters
from tests.benchmarks.many_ranks.imbalance import least_most, over_mean, sizes_of, step_imbalance
from tests.benchmarks.many_ranks.traffic_simulation import Moved, traffic
from tests.benchmarks.steps.model_shapes import Shapes, SplitModel

Shape = tuple[int, ...]

PLAIN = {"preconditioner": "none"}
LOCAL = {"distributed": "local"}


@dataclass(frozen=True, slots=True)
class Group:
    """A parameter group."""

    shapes: Shapes
    config: Mapping[str, Any]


def fully_sharded(num_shards: int, num_replicas: int = 1) -> RankArray:
    """FSDP2, or HSDP with replicas."""
    return RankArray((num_shards,), 0) if num_replicas == 1 else RankArray((num_replicas, num_shards), 1)


def replicated(num_ranks: int) -> RankArray:
    """Plain parameters, as under DDP."""
    return RankArray((num_ranks,), None)


@dataclass(frozen=True)
class Simulation:
    """All ranks of an array, by number."""

    members: Sequence[Member]
    owners: Sequence[Owners]
    loads: Loads
    """Work and state of each rank as the assignment counts them: those of blocks and parameters that have owners."""
    array: RankArray
    state_bytes: Sequence[int]
    operations: Sequence[float]
    """Operations of each rank in a mean step."""
    assignment_seconds: float
    """Time of choosing the owners, which every rank does for itself."""

    @cached_property
    def moved(self) -> Moved:
        """Traffic and memory of a step."""
        if self.members:
            return traffic(self.members, self.owners)
        nothing = [0] * self.array.num_ranks
        return Moved(nothing, nothing, nothing)

    @property
    def state_imbalance(self) -> float:
        """Most state of a rank over the mean."""
        return over_mean(self.state_bytes)

    @property
    def work_imbalance(self) -> float:
        """Most work of a rank over the mean."""
        return over_mean(self.operations)

    @cached_property
    def least_imbalance(self) -> tuple[float, float]:
        """Lower bounds of any assignment of whole blocks, in work and in state."""
        found = []
        lying = Loads.none(self.array.num_ranks)
        if self.array.is_cut:
            owners_of([member for member in self.members if member.h.preconditioner == "none"], lying)
        sizes = sizes_of(self.members)
        for of_blocks, of_ranks, already in zip(
            sizes,
            (self.loads.operations, self.loads.state_bytes),
            (lying.operations, lying.state_bytes),
            strict=True,
        ):
            mean = sum(of_ranks) / len(of_ranks)
            # Elements that lie with their ranks are there whatever the owners of blocks.
            least = max(mean, max(already), least_most(of_blocks, len(of_ranks)) + min(already))
            found.append(least / mean if mean else 1.0)
        return found[0], found[1]

    def step_imbalance(self, *, stagger_refresh: bool) -> float:
        """Over a refresh period: each step's most work of a rank, summed, over the mean work of the ranks."""
        return step_imbalance(self.members, self.owners, self.array.num_ranks, stagger_refresh=stagger_refresh)


def groups_of(model: SplitModel, *, preconditioner: str, **config: Any) -> list[Group]:
    """The groups of `shampoo.param_groups`: matrices by a member of the family, the rest by AdamW.

    Args:
        model: whose parameters.
        preconditioner: the member.
        config: other hyperparameters of the matrices.
    """
    return [Group(model.matrices, {"preconditioner": preconditioner, **config}), Group(model.plain, PLAIN)]


def members_of(groups: Sequence[Group], array: RankArray, *, device: str, dtype: torch.dtype) -> list[Member]:
    """The parameters that have owners."""
    return [
        Member(number, shape, dtype, h, array, device)
        for number, group in enumerate(groups)
        if group.config.get("distributed") != "local"
        for h in [Hyperparameters(**{**DEFAULTS, **group.config})]
        for shape in group.shapes
    ]


def group_size(groups: Sequence[Group], num_ranks: int, *, device: str = "cuda") -> int:
    """How many of these ranks would share plain parameters."""
    return choose_group_size(members_of(groups, replicated(1), device=device, dtype=torch.float32), num_ranks)


def simulate(
    groups: Sequence[Group], array: RankArray, *, device: str = "cuda", dtype: torch.dtype = torch.float32
) -> Simulation:
    """The state and work of all ranks."""
    members = members_of(groups, array, device=device, dtype=dtype)
    loads = Loads.none(array.num_ranks)
    started = time.perf_counter()
    owners = owners_of(members, loads)
    seconds = time.perf_counter() - started
    state_bytes, operations = [0] * array.num_ranks, [0.0] * array.num_ranks
    for number in {member.group for member in members}:
        here = [(member, of) for member, of in zip(members, owners, strict=True) if member.group == number]
        for rank, cost in enumerate(costs_per_rank([m for m, _ in here], [of for _, of in here], array.num_ranks)):
            state_bytes[rank] += cost.state_bytes
            operations[rank] += cost.operations_per_step
    for shard in range(array.num_shards):
        of_shard = _local_cost(groups, shard, num_shards=array.num_shards, device=device, dtype=dtype)
        for replica in range(array.num_replicas):
            state_bytes[array.number_of(replica, shard)] += of_shard[0]
            operations[array.number_of(replica, shard)] += of_shard[1]
    return Simulation(members, owners, loads, array, state_bytes, operations, seconds)


def _local_cost(
    groups: Sequence[Group], shard: int, *, num_shards: int, device: str, dtype: torch.dtype
) -> tuple[int, float]:
    """Bytes of state and operations of a shard of everything that has no owner."""
    state_bytes, operations = 0, 0.0
    for group in groups:
        if group.config.get("distributed") == "local":
            config = tuple(sorted(group.config.items()))
            for shape, count in Counter(group.shapes).items():
                first, last = rows_of_shard(shape[0], num_shards, shard)
                cost = _cost((last - first, *shape[1:]), dtype, device, config)
                state_bytes += count * cost.state_bytes
                operations += count * cost.operations_per_step
    return state_bytes, operations


@cache
def _cost(shape: Shape, dtype: torch.dtype, device: str, config: tuple[tuple[str, Any], ...]) -> Cost:
    return estimate([shape], dtype=dtype, device=device, **dict(config))
