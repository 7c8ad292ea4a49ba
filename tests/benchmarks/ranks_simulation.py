"""What each of many ranks would hold, compute and send, from shapes alone: the optimizer's own choice of owners, but no
ranks.

Ranks are numbered as in a mesh of replicas x shards. Traffic is what `shampoo.distributed.exchange` sends to other
ranks, to the byte; an all-gather counts as a ring does it.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from shampoo.blocking import regions
from shampoo.cost import Cost, estimate
from shampoo.distributed.assignment import Burden, Loads, assign
from shampoo.distributed.flat import FlatLayout
from shampoo.hyperparameters import DEFAULTS, Hyperparameters
from shampoo.weights import READABLE_DEVICES
from tests.benchmarks.model_shapes import Shapes, SplitModel

Shape = tuple[int, ...]
Member = tuple[int, Shape]
"""A parameter that has an owner: number of its group, and shape."""

PLAIN = {"preconditioner": "none"}
LOCAL = {"distributed": "local"}


@dataclass(frozen=True, slots=True)
class Group:
    """A parameter group."""

    shapes: Shapes
    config: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank of a simulation."""

    state_bytes: int
    operations: float
    """Of a mean step."""
    owned_bytes: int
    """Of whole weights; a step holds four times that beside the state."""
    sent_bytes: int
    received_bytes: int


@dataclass(frozen=True, slots=True)
class Simulation:
    """All of them."""

    ranks: Sequence[Rank]
    assignment_seconds: float
    """Of choosing owners, which every rank does for itself."""
    largest_state_bytes: int
    """Of the parameter with an owner that has most state."""
    largest_operations: float
    """Of the one that has most work."""
    largest_block_share: float
    """Of a block in all state or all work of these parameters, whichever is more."""

    @property
    def state_imbalance(self) -> float:
        """Most state of a rank over the mean."""
        return _imbalance([rank.state_bytes for rank in self.ranks])

    @property
    def work_imbalance(self) -> float:
        """Most work of a rank over the mean."""
        return _imbalance([rank.operations for rank in self.ranks])

    @property
    def least_imbalance(self) -> float:
        """What no assignment of whole parameters could be below, in the worse of state and work: the largest one's
        share times the number of ranks."""
        state = sum(rank.state_bytes for rank in self.ranks)
        operations = sum(rank.operations for rank in self.ranks)
        shares = [self.largest_state_bytes / state, self.largest_operations / operations if operations else 0.0]
        return max(1.0, len(self.ranks) * max(shares))

    @property
    def least_by_block(self) -> float:
        """The same if ranks could own blocks of a parameter, which they cannot yet."""
        return max(1.0, len(self.ranks) * self.largest_block_share)


def groups_of(model: SplitModel, *, preconditioner: str, local_plain: bool, **config: Any) -> list[Group]:
    """The groups of `shampoo.param_groups`: matrices by a member of the family, the rest by AdamW.

    Args:
        model: whose parameters.
        preconditioner: the member.
        local_plain: what has no preconditioner is stepped where it lies: distributed="local" for that group.
        config: other hyperparameters of the matrices.
    """
    plain = {**PLAIN, **(LOCAL if local_plain else {})}
    return [Group(model.matrices, {"preconditioner": preconditioner, **config}), Group(model.plain, plain)]


def simulate(
    groups: Sequence[Group],
    *,
    num_shards: int,
    num_replicas: int = 1,
    device: str = "cuda",
    dtype: torch.dtype = torch.float32,
) -> Simulation:
    """What the ranks of a mesh would have to do."""
    num_ranks = num_replicas * num_shards
    cost_of = {
        (number, shape): estimate([shape], dtype=dtype, device=device, **group.config)
        for number, group in enumerate(groups)
        for shape in set(group.shapes)
    }
    members = [
        (number, shape)
        for number, group in enumerate(groups)
        if group.config.get("distributed") != "local"
        for shape in group.shapes
    ]
    burdens = [
        Burden((*member, dtype), cost_of[member].operations_per_step, cost_of[member].state_bytes) for member in members
    ]
    started = time.perf_counter()
    owners = assign(burdens, Loads.none(num_ranks))
    seconds = time.perf_counter() - started
    owned = [Counter[Member]() for _ in range(num_ranks)]
    for owner, member in zip(owners, members, strict=True):
        owned[owner][member] += 1
    local = [
        _local_cost(groups, shard, num_shards=num_shards, device=device, dtype=dtype) for shard in range(num_shards)
    ]
    sent, received = _traffic(owned, num_shards=num_shards, dtype=dtype, has_flags=device in READABLE_DEVICES)
    ranks = [
        Rank(
            state_bytes=local[number % num_shards][0]
            + sum(n * cost_of[member].state_bytes for member, n in here.items()),
            operations=local[number % num_shards][1]
            + sum(n * cost_of[member].operations_per_step for member, n in here.items()),
            owned_bytes=sum(n * math.prod(member[1]) for member, n in here.items()) * dtype.itemsize,
            sent_bytes=sent[number],
            received_bytes=received[number],
        )
        for number, here in enumerate(owned)
    ]
    return Simulation(
        ranks,
        seconds,
        max((burden.state_bytes for burden in burdens), default=0),
        max((burden.operations for burden in burdens), default=0.0),
        _largest_block_share(groups, burdens, members, device=device, dtype=dtype),
    )


def _largest_block_share(
    groups: Sequence[Group], burdens: Sequence[Burden], members: Sequence[Member], *, device: str, dtype: torch.dtype
) -> float:
    state_bytes = sum(burden.state_bytes for burden in burdens) or 1
    operations = sum(burden.operations for burden in burdens) or 1.0
    largest = 0.0
    for number, shape in set(members):
        config = groups[number].config
        for block in {region.block for region in regions(shape, Hyperparameters(**{**DEFAULTS, **config}))}:
            cost = _cost(block, dtype, device, tuple(sorted(config.items())))
            largest = max(largest, cost.state_bytes / state_bytes, cost.operations_per_step / operations)
    return largest


def rows_of_shard(length: int, num_shards: int, shard: int) -> int:
    """How many of a parameter's rows a shard has, cut as `torch.chunk` does."""
    most = math.ceil(length / num_shards)
    return min(length, (shard + 1) * most) - min(length, shard * most)


def _local_cost(
    groups: Sequence[Group], shard: int, *, num_shards: int, device: str, dtype: torch.dtype
) -> tuple[int, float]:
    """Bytes of state and operations of a shard of everything that has no owner."""
    state_bytes, operations = 0, 0.0
    for group in groups:
        if group.config.get("distributed") == "local":
            config = tuple(sorted(group.config.items()))
            for shape, count in Counter(group.shapes).items():
                rows = rows_of_shard(shape[0], num_shards, shard)
                cost = _cost((rows, *shape[1:]), dtype, device, config)
                state_bytes += count * cost.state_bytes
                operations += count * cost.operations_per_step
    return state_bytes, operations


@cache
def _cost(shape: Shape, dtype: torch.dtype, device: str, config: tuple[tuple[str, Any], ...]) -> Cost:
    return estimate([shape], dtype=dtype, device=device, **dict(config))


def _traffic(
    owned: Sequence[Counter[Member]], *, num_shards: int, dtype: torch.dtype, has_flags: bool
) -> tuple[list[int], list[int]]:
    """Bytes that each rank sends to others and receives from them, given what it owns."""
    num_replicas = len(owned) // num_shards
    if not any(owned):
        return [0] * len(owned), [0] * len(owned)
    of_row = [
        sum((owned[row * num_shards + place] for place in range(num_shards)), Counter[Member]())
        for row in range(num_replicas)
    ]

    @cache
    def aligned(shape: Shape, shard: int) -> int:
        return FlatLayout([((rows_of_shard(shape[0], num_shards, shard), *shape[1:]), dtype)]).num_bytes

    @cache
    def whole(shape: Shape) -> int:
        return sum(aligned(shape, shard) for shard in range(num_shards))

    def rows(members: Counter[Member], shard: int) -> int:
        return sum(count * aligned(shape, shard) for (_, shape), count in members.items())

    flags = [_flags(members.total()) if has_flags else 0 for members in owned]
    report = FlatLayout([((), torch.int64)]).num_bytes
    in_row = [[rows(members, place) for place in range(num_shards)] for members in of_row]
    flags_of_row = [sum(flags[row * num_shards : (row + 1) * num_shards]) for row in range(num_replicas)]
    sent: list[int] = []
    received: list[int] = []
    for number, members in enumerate(owned):
        row, place = divmod(number, num_shards)
        own = rows(members, place)
        of_owned = sum(count * whole(shape) for (_, shape), count in members.items())
        others, in_place = num_shards - 1, in_row[row][place]
        # Weights, gradients and flags to the owners; new weights and reports from them; then over the replicas.
        out = 2 * (in_place - own) + flags_of_row[row] - flags[number] + (of_owned - own) + others * report
        back = 2 * (of_owned - own) + others * flags[number] + (in_place - own) + others * report
        longest = max(in_row[other][place] for other in range(num_replicas)) + num_shards * report
        sent.append(out + (num_replicas - 1) * longest)
        received.append(back + (num_replicas - 1) * longest)
    return sent, received


def _flags(count: int) -> int:
    return FlatLayout([((count,), torch.bool)]).num_bytes


def _imbalance(figures: Sequence[float]) -> float:
    mean = sum(figures) / len(figures)
    return max(figures) / mean if mean else 1.0
