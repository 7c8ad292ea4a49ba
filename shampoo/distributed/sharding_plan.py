"""The sharding plan: which blocks of each parameter this rank owns, and the tensors that it steps for them.

A parameter that ranks share is stepped in a placeholder, which has memory only during its round. On an owner it holds
the whole parameter or some blocks of it; if every rank steps its own shard, it holds this shard. Any other parameter is
stepped directly.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from shampoo.distributed.agreement import require_agreement
from shampoo.distributed.assignment import Loads
from shampoo.distributed.block_rows import BLOCKS, RowRuns
from shampoo.distributed.placement import LOCAL, Groups, Placement, Placements, Settled, place
from shampoo.distributed.rounds import Rounds
from shampoo.distributed.shards import gradient_shard
from shampoo.distributed.topology import Topology
from shampoo.state.buckets import BucketPiece, Stepped

T = TypeVar("T")


class ShardingPlan:
    """The placements of all parameters that ranks share."""

    def __init__(self) -> None:
        self._placements: dict[Tensor, Placement] = {}
        self._loads: dict[Hashable, Loads] = {}
        self._group_size: int | None = None
        self.rounds = Rounds()

    @property
    def settled(self) -> Settled:
        """The choices that lead to the same plan again."""
        owners = {param: placement.owners for param, placement in self._placements.items()}
        return Settled(owners, self._group_size)

    def propose(self, groups: Groups, settled: Settled | None = None) -> Placements:
        """Placements of the parameters of groups, in addition to those of the plan; the same on every rank. Collective
        if plain parameters are shared, unless `settled` says how.

        Raises:
            ValueError: a layout is not supported, or the ranks' plain parameters differ.
        """
        if settled is None:
            require_agreement(groups)
        return place(
            groups, loads=self._loads, num_rounds=len(self.rounds), group_size=self._group_size, settled=settled
        )

    def adopt(self, placements: Placements) -> None:
        """Adds the parameters of placements."""
        self._placements.update(placements.of_param)
        self._loads.update(placements.loads)
        self._group_size = placements.group_size
        self.rounds.add(list(placements.of_param.values()), num_rounds=placements.num_rounds)

    def of(self, param: Tensor) -> Tensor | None:
        """The tensor that this rank steps in place of a parameter; None: other ranks own it."""
        placement = self._placements.get(param)
        return param if placement is None else placement.placeholder

    def by_round(self, params: Sequence[Tensor]) -> dict[int, list[Stepped]]:
        """The tensors that this rank steps for parameters, by round; each round lists all parameters, to keep their
        order."""
        number_of = {param: self._round(param) for param in params}
        found: dict[int, list[Stepped]] = {}
        for number in sorted({number_of[param] for param in params if self.of(param) is not None}):
            found[number] = [self._stepped(param, is_now=number_of[param] == number) for param in params]
        return found

    def part_name(self, param: Tensor) -> str | None:
        """The name of the part of a parameter that this rank steps: its shard, or some blocks; None if it steps all of
        it."""
        placement = self._placements.get(param)
        if placement is None:
            return None
        if placement.owners is None:
            return f"shard {placement.layout.shard} of {placement.layout.num_shards}"
        topology = placement.layout.topology
        return None if placement.runs is None else f"part {topology.number} of {topology.array.num_ranks}"

    def blocks(self, param: Tensor) -> dict[str, Tensor]:
        """The blocks that this rank has of each region of a parameter, (number of runs, 2) by name; {} if all."""
        placement = self._placements.get(param)
        runs = None if placement is None else placement.runs
        if runs is None:
            return {}
        tensors = (torch.tensor(of_region, device="cpu").view(-1, 2) for of_region in runs)
        return {f"{BLOCKS}{index}": tensor for index, tensor in enumerate(tensors)}

    def rows(self, param: Tensor, pieces: Sequence[BucketPiece]) -> dict[int, RowRuns]:
        """The rows that this rank has of each region of a parameter, by the number of the region in the state."""
        placement = self._placements.get(param)
        if placement is None or placement.runs is None:
            return {}
        return {
            piece.number: RowRuns(placement.runs[piece.index], placement.regions[piece.index].num_blocks)
            for piece in pieces
        }

    def require_gradients(self) -> None:
        """Checks the layouts of the gradients, before any rank waits for another.

        Raises:
            RuntimeError: one does not fit its parameter.
        """
        for placement in self._placements.values():
            gradient_shard(placement.param)

    def of_all_ranks(self, found: Mapping[Tensor, T]) -> list[list[T]]:
        """The results of all ranks for the tensors that they step, given those of this rank; collective.

        A list for each parameter: the results of its owners, or of each shard if every rank steps its own.
        """
        placements = self._placements.values()
        placeholders = {placement.placeholder for placement in placements if placement.placeholder is not None}
        everything = [[found[param]] for param in found if param not in placeholders]
        for topology in dict.fromkeys(placement.layout.topology for placement in placements):
            own: list[tuple[int, int | None, int, T]] = []
            for number, placement in enumerate(placements):
                if placement.layout.topology == topology and placement.placeholder is not None:
                    shard = placement.layout.shard if placement.owners is None else None
                    own.append((number, shard, topology.number, found[placement.placeholder]))
            by_part: dict[tuple[int, int | None], dict[int, T]] = {}
            for number, shard, rank, x in _over_ranks(topology, own):
                # Every replica has found the same for a shard.
                by_part.setdefault((number, shard), {})[rank if shard is None else 0] = x
            everything.extend(list(of_part.values()) for of_part in by_part.values())
        return everything

    def _stepped(self, param: Tensor, *, is_now: bool) -> Stepped:
        placement, tensor = self._placements.get(param), self.of(param)
        steps_shard = placement is not None and placement.owners is None
        shape = tuple(tensor.shape if steps_shard and tensor is not None else param.shape)
        here = tensor if is_now else None
        return Stepped(shape, param, here, None if placement is None or here is None else placement.runs)

    def _round(self, param: Tensor) -> int:
        placement = self._placements.get(param)
        return LOCAL if placement is None else placement.round


def _over_ranks(topology: Topology, own: list[T]) -> list[T]:
    """The lists of all ranks, one after the other, by one collective for each dimension of their array."""
    for size, group in zip(topology.array.sizes, topology.groups, strict=True):
        gathered: list[list[T]] = [[] for _ in range(size)]
        dist.all_gather_object(gathered, own, group=group)
        own = list(itertools.chain.from_iterable(gathered))
    return own
