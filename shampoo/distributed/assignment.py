"""Which rank owns which parameter: by predicted cost, from shapes and hyperparameters alone, so without communication.

Both what a step computes and the bytes of state are to be even over the ranks. A refresh is due for consecutive blocks
of a group at a time, so neighbours of equal shape go to different ranks, which then refresh at the same step; but
parameters too small to matter alone stay in packets, so that a rank's blocks of a shape are stacked still.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from shampoo.cost import Cost, estimate

_PACKETS_PER_RANK = 8
"""A packet of equal parameters is at most this part of a rank's share, which bounds what it can unbalance."""


@dataclass(frozen=True, slots=True)
class Burden:
    """What owning a parameter takes."""

    kind: Hashable
    """Equal for parameters whose blocks are stacked together."""
    operations: float
    """Of its steps and refreshes, in a mean step."""
    state_bytes: int


@dataclass(slots=True)
class Loads:
    """What the ranks own already."""

    operations: list[float] = field(default_factory=list)
    state_bytes: list[int] = field(default_factory=list)

    @classmethod
    def none(cls, num_ranks: int) -> Loads:
        return cls([0.0] * num_ranks, [0] * num_ranks)

    def copy(self) -> Loads:
        return Loads(list(self.operations), list(self.state_bytes))

    def add(self, rank: int, burden: Burden) -> None:
        self.operations[rank] += burden.operations
        self.state_bytes[rank] += burden.state_bytes


def assign(burdens: Sequence[Burden], loads: Loads) -> list[int]:
    """The owner of each parameter; adds them to `loads`.

    Greedy, the largest packet first, each to the rank on which the larger of its two shares stays smallest.
    """
    num_ranks = len(loads.operations)
    total_operations = sum(loads.operations) + sum(burden.operations for burden in burdens)
    total_bytes = sum(loads.state_bytes) + sum(burden.state_bytes for burden in burdens)

    def share(operations: float, state_bytes: float) -> float:
        return max(operations / (total_operations or 1), state_bytes / (total_bytes or 1))

    members: dict[Hashable, list[int]] = {}
    for index, burden in enumerate(burdens):
        members.setdefault(burden.kind, []).append(index)
    packets: list[list[int]] = []
    for indices in members.values():
        one = max(share(burdens[i].operations, burdens[i].state_bytes) for i in indices)
        in_packet = max(1, math.floor(1 / (_PACKETS_PER_RANK * num_ranks * one))) if one > 0 else len(indices)
        num_packets = math.ceil(len(indices) / in_packet)
        packets.extend(indices[number::num_packets] for number in range(num_packets))

    def packet_cost(packet: Sequence[int]) -> tuple[float, int]:
        return sum(burdens[i].operations for i in packet), sum(burdens[i].state_bytes for i in packet)

    def preference(rank: int, operations: float, state_bytes: int) -> tuple[float, float, int]:
        return (
            share(loads.operations[rank] + operations, loads.state_bytes[rank] + state_bytes),
            loads.operations[rank] / (total_operations or 1) + loads.state_bytes[rank] / (total_bytes or 1),
            rank,
        )

    owners = [0] * len(burdens)
    ordered = sorted(packets, key=lambda packet: (-share(*packet_cost(packet)), packet[0]))
    for (operations, state_bytes), equal in itertools.groupby(ordered, key=packet_cost):
        # Among equal packets only the last one's rank has another preference: a queue, or 70,000 parameters over 4,096
        # ranks take a minute.
        queue = [preference(rank, operations, state_bytes) for rank in range(num_ranks)]
        heapq.heapify(queue)
        for packet in equal:
            rank = queue[0][-1]
            for index in packet:
                owners[index] = rank
                loads.add(rank, burdens[index])
            heapq.heapreplace(queue, preference(rank, operations, state_bytes))
    return owners


def estimate_per_rank(
    shapes: Iterable[Sequence[int]],
    *,
    num_ranks: int,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    **config: Any,
) -> list[Cost]:
    """What each rank pays for `Shampoo(params, **config)`, distributed="lossless", with parameters of these shapes in
    one group; see `shampoo.cost.estimate`.

    Raises:
        ValueError: `num_ranks` is below 1, or as `estimate`.
    """
    if num_ranks < 1:
        raise ValueError(f"num_ranks must be at least 1, got {num_ranks}")
    given = [tuple(shape) for shape in shapes]
    known = {shape: estimate([shape], dtype=dtype, device=device, **config) for shape in set(given)}
    burdens = [Burden(shape, known[shape].operations_per_step, known[shape].state_bytes) for shape in given]
    owned: list[list[tuple[int, ...]]] = [[] for _ in range(num_ranks)]
    for shape, owner in zip(given, assign(burdens, Loads.none(num_ranks)), strict=True):
        owned[owner].append(shape)
    return [estimate(shapes, dtype=dtype, device=device, **config) for shapes in owned]
