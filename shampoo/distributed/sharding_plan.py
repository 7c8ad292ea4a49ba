"""What this rank steps in place of each parameter: what it owns of one, its shard, or the plain one itself."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from shampoo.cost import Cost
from shampoo.distributed.assignment import Loads
from shampoo.distributed.block_rows import BLOCKS, Rows
from shampoo.distributed.boxes import Box, OwnedPart, Runs, boxes, num_owned
from shampoo.distributed.exchange import Exchange
from shampoo.distributed.layout import ShardLayout, is_dtensor, layout_of
from shampoo.distributed.ownership import (
    Member,
    Owners,
    add_loads,
    choose_group_size,
    cost_of_runs,
    largest_unit,
    owners_of,
)
from shampoo.distributed.shards import empty, fill, gradient_shard, own_shard, stand_in
from shampoo.distributed.topology import RankArray, Topology, of_replicas, world_size
from shampoo.hyperparameters import Hyperparameters
from shampoo.state.blocking import Region, regions
from shampoo.state.buckets import Piece, Stepped

T = TypeVar("T")
Groups = Sequence[tuple[Sequence[Tensor], Hyperparameters]]

ROUND_BYTES = 64 << 20
"""Weights that a rank owns on average in one round of exchanges; a step holds those of two rounds at a time."""
_GATHERED = 8
"""What is gathered over replicas in a round is at most so many times as much."""
LOCAL = -1
"""The round of what no other rank takes part in."""
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a parameter of which ranks hold or step parts is stepped."""

    param: Tensor
    layout: ShardLayout
    owners: Owners | None
    """None: every rank steps its shard."""
    here: Tensor | None
    """What this rank steps; None: nothing."""
    runs: Runs | None
    """Which blocks of its regions that is; None: all."""
    round: int
    communication_dtype: torch.dtype
    reduces: bool
    """Gradients are each rank's own."""
    regions: tuple[Region, ...]
    """Of the whole parameter; () where every rank steps its shard."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Where parameters that are to be added would be stepped."""

    placed: Mapping[Tensor, Placed]
    loads: Mapping[Hashable, Loads]
    num_rounds: int
    """Of exchanges, with those there have been before."""
    group_size: int | None
    """Ranks that share the work of plain parameters, where it has been chosen."""

    def costs(self, params: Sequence[Tensor], h: Hyperparameters) -> Iterator[tuple[Tensor, Cost]]:
        """What this rank would pay for each of these parameters, as far as it steps it."""
        known: dict[object, Cost] = {}
        for param in params:
            placed = self.placed.get(param)
            here = param if placed is None else placed.here
            if here is None:
                continue
            runs = None if placed is None else placed.runs
            # A part's shape is of no use for its cost.
            shape = tuple(here.shape if runs is None else param.shape)
            key = shape, param.dtype, runs
            if key not in known:
                known[key] = cost_of_runs(shape, runs, h, dtype=param.dtype, device=param.device.type)
            yield param, known[key]

    def working_bytes(self) -> int:
        """What a step needs beside the state: of two rounds, what this rank steps of weights and gradients, as much
        again for buffers, and what is gathered over replicas."""
        by_round: dict[int, int] = {}
        for placed in self.placed.values():
            if placed.owners is not None:
                num_bytes = gathered_bytes(
                    placed.param.numel() * placed.param.dtype.itemsize, placed.layout.topology.array
                )
                if placed.here is not None:
                    num_bytes += 4 * placed.here.numel() * placed.here.dtype.itemsize
                by_round[placed.round] = by_round.get(placed.round, 0) + num_bytes
        return sum(sorted(by_round.values())[-2:])


class StandIns:
    """The tensors that this rank steps in place of parameters that are shared; others stand for themselves."""

    def __init__(self) -> None:
        self._placed: dict[Tensor, Placed] = {}
        self._loads: dict[Hashable, Loads] = {}
        self._rounds: list[dict[tuple[Topology, torch.dtype, bool, torch.device], Exchange]] = []
        self._group_size: int | None = None
        self.largest_report: Tensor | None = None
        """Of all ranks, int64 scalar, from the last step; None where a step is not collective."""

    @property
    def shared_on(self) -> torch.device | None:
        """The device of the parameters that a step exchanges with other ranks; None: a step is not collective."""
        exchanges = (exchange for by_kind in self._rounds for exchange in by_kind.values())
        return next((exchange.device for exchange in exchanges), None)

    def of(self, param: Tensor) -> Tensor | None:
        """What this rank steps in place of a parameter; None: other ranks own it."""
        placed = self._placed.get(param)
        return param if placed is None else placed.here

    def by_round(self, params: Sequence[Tensor]) -> dict[int, list[Stepped]]:
        """What this rank steps of parameters, by round; each has all of them, for their order."""
        number_of = {param: self._round(param) for param in params}
        found: dict[int, list[Stepped]] = {}
        for number in sorted({number_of[param] for param in params if self.of(param) is not None}):
            found[number] = [self._stepped(param, is_now=number_of[param] == number) for param in params]
        return found

    def _stepped(self, param: Tensor, *, is_now: bool) -> Stepped:
        placed, tensor = self._placed.get(param), self.of(param)
        steps_shard = placed is not None and placed.owners is None
        shape = tuple(tensor.shape if steps_shard and tensor is not None else param.shape)
        here = tensor if is_now else None
        return Stepped(shape, param, here, None if placed is None or here is None else placed.runs)

    def _round(self, param: Tensor) -> int:
        """`LOCAL` where no other rank takes part."""
        placed = self._placed.get(param)
        return LOCAL if placed is None or placed.owners is None else placed.round

    @property
    def owners(self) -> dict[Tensor, Owners | None]:
        """Those of the parameters that are shared; None where every rank steps its shard."""
        return {param: placed.owners for param, placed in self._placed.items()}

    def part_name(self, param: Tensor) -> str | None:
        """The name of what this rank steps of a parameter: of its shard, or of some blocks; None of all of it."""
        placed = self._placed.get(param)
        if placed is None:
            return None
        if placed.owners is None:
            return f"shard {placed.layout.shard} of {placed.layout.num_shards}"
        topology = placed.layout.topology
        return None if placed.runs is None else f"part {topology.number} of {topology.array.num_ranks}"

    def blocks(self, param: Tensor) -> dict[str, Tensor]:
        """Which blocks this rank has of each region of a parameter, (number of runs, 2) by name; {} if it has all."""
        placed = self._placed.get(param)
        runs = None if placed is None else placed.runs
        if runs is None:
            return {}
        return {f"{BLOCKS}{index}": torch.tensor(of_region).view(-1, 2) for index, of_region in enumerate(runs)}

    def rows(self, param: Tensor, pieces: Sequence[Piece]) -> dict[int, Rows]:
        """The same by number of the region in the state."""
        placed = self._placed.get(param)
        if placed is None or placed.runs is None:
            return {}
        return {
            piece.number: Rows(placed.runs[piece.index], placed.regions[piece.index].num_blocks) for piece in pieces
        }

    @property
    def group_size(self) -> int | None:
        """Ranks that share the work of plain parameters, where it has been chosen."""
        return self._group_size

    def plan(
        self,
        groups: Groups,
        settled: Mapping[Tensor, Owners | None] | None = None,
        settled_group_size: int | None = None,
    ) -> Plan:
        """Where the parameters of groups are to be stepped, beside what has been added; the same on every rank.

        Args:
            settled: the owners of those that are shared, where that has been decided before.
            settled_group_size: `group_size` at that time.

        Raises:
            ValueError: a layout is not supported.
        """
        group_size = self._group_size if settled is None else settled_group_size
        found: list[tuple[int, Hyperparameters, Tensor, ShardLayout]] = []
        wanted = [
            (number, h, param, index)
            for number, (params, h) in enumerate(groups)
            for index, param in enumerate(params)
            if is_shared(param, h)
        ]
        plain = [(number, h, param) for number, h, param, _ in wanted if not is_dtensor(param)]
        if settled is not None:
            wanted = [entry for entry in wanted if entry[2] in settled]
        elif (
            plain
            and group_size is None
            and any(h.num_ranks_per_group is None and not h.reduce_gradients for _, h, _ in plain)
        ):
            group_size = choose_group_size([_member(*entry, RankArray((1,), None)) for entry in plain], world_size())
        for number, h, param, index in wanted:
            if is_dtensor(param):
                found.append((number, h, param, layout_of(param, index=index)))
                continue
            size = world_size() if h.reduce_gradients else h.num_ranks_per_group or group_size or 1
            if size > 1:
                found.append((number, h, param, ShardLayout(of_replicas(size), tuple(param.shape))))
        whole = [entry for entry in found if entry[1].distributed != "local"]
        loads = {ranks: load.copy() for ranks, load in self._loads.items()}
        owners: dict[Tensor, Owners] = {}
        for ranks in dict.fromkeys(layout.topology.ranks for *_, layout in whole):
            here = [entry for entry in whole if entry[-1].topology.ranks == ranks]
            load = loads.setdefault(ranks, Loads.none(here[0][-1].topology.array.num_ranks))
            members = [_member(number, h, param, layout.topology.array) for number, h, param, layout in here]
            if settled is None:
                chosen = owners_of(members, load)
            else:
                chosen = [settled[param] or {} for _, _, param, _ in here]
                add_loads(members, chosen, load)
            owners.update(zip((param for _, _, param, _ in here), chosen, strict=True))
        rounds = self._round_of(whole)
        placed = {
            param: _placed(param, h, layout, owners.get(param), rounds.get(param, LOCAL))
            for _, h, param, layout in found
        }
        num_rounds = max((number + 1 for number in rounds.values()), default=len(self._rounds))
        return Plan(placed, loads, num_rounds, group_size)

    def adopt(self, plan: Plan) -> None:
        """Adds the parameters of a plan."""
        self._placed.update(plan.placed)
        self._loads.update(plan.loads)
        self._group_size = plan.group_size
        self._rounds.extend({} for _ in range(plan.num_rounds - len(self._rounds)))
        for placed in plan.placed.values():
            if placed.owners is None:
                continue
            topology = placed.layout.topology
            key = topology, placed.communication_dtype, placed.reduces, placed.param.device
            by_kind = self._rounds[placed.round]
            exchange = by_kind.setdefault(key, Exchange(topology, placed.communication_dtype, reduces=placed.reduces))
            for owner, runs in placed.owners.items():
                exchange.add(_part(placed, owner, runs))

    def require_gradients(self) -> None:
        """Checks the layouts of the gradients, before any rank waits for another.

        Raises:
            RuntimeError: one does not fit its parameter.
        """
        for placed in self._placed.values():
            gradient_shard(placed.param)

    @contextmanager
    def rounds(self, report: Callable[[], Tensor] | None = None) -> Iterator[Iterator[int]]:
        """Iterates over rounds, during each of which its stand-ins hold weights and gradients; collective.

        Args:
            report: where stand-ins are stepped: what the owners have stepped is brought into the parameters of all
                ranks, with what this gives, an int64 scalar on their device, asked at the end of each round.
        """
        walk = self._walk(report)
        try:
            yield walk
        finally:
            walk.close()
            for by_kind in self._rounds:
                for exchange in by_kind.values():
                    exchange.abandon()
            for placed in self._placed.values():
                if placed.here is not None:
                    empty(placed.here)

    def _walk(self, report: Callable[[], Tensor] | None) -> Generator[int]:
        """What has been collected for the next round is under way while one is stepped, and so are its weights."""
        rounds = [list(by_kind.values()) for by_kind in self._rounds]
        reports: list[Tensor] = []
        if rounds:
            for exchange in rounds[0]:
                exchange.start_collecting()
        for placed in self._placed.values():
            if placed.owners is None and placed.here is not None:
                fill(placed.here, own_shard(placed.param), gradient_shard(placed.param))
        yield LOCAL
        for number, exchanges in enumerate(rounds):
            for exchange in exchanges:
                exchange.finish_collecting(will_hand_back=report is not None)
            for exchange in rounds[number + 1] if number + 1 < len(rounds) else ():
                exchange.start_collecting()
            yield number
            if report is None:
                self._empty(number)
                continue
            for exchange in exchanges:
                exchange.start_handing_back(report())
            self._empty(number)
            if number > 0:
                reports.extend(
                    exchange.finish_handing_back().max().to(self.shared_on) for exchange in rounds[number - 1]
                )
        if report is not None and rounds:
            reports.extend(exchange.finish_handing_back().max().to(self.shared_on) for exchange in rounds[-1])
        self.largest_report = torch.stack(reports).max() if reports else None

    def norms(self, number: int) -> dict[Tensor, Tensor]:
        """Norms of whole gradients, scalars, by the stand-ins of a round that is being stepped of which the exchange
        knows."""
        if number == LOCAL:
            return {}
        return {tensor: x for exchange in self._rounds[number].values() for tensor, x in exchange.norms.items()}

    def of_all_ranks(self, found: Mapping[Tensor, T]) -> list[list[T]]:
        """What all ranks have found for the tensors that they step, given what this one has; collective.

        A list for each parameter, of what its owners have found, or, where every rank steps its shard, for each shard.
        """
        stand_ins = {placed.here for placed in self._placed.values() if placed.here is not None}
        everything = [[found[param]] for param in found if param not in stand_ins]
        for topology in dict.fromkeys(placed.layout.topology for placed in self._placed.values()):
            own: list[tuple[int, int, int, T]] = []
            for number, placed in enumerate(self._placed.values()):
                if placed.layout.topology == topology and placed.here is not None:
                    shard = LOCAL if placed.owners is not None else placed.layout.shard
                    own.append((number, shard, topology.number, found[placed.here]))
            by_part: dict[tuple[int, int], dict[int, T]] = {}
            for number, shard, rank, x in _over_ranks(topology, own):
                # A replica's shard is the same shard.
                by_part.setdefault((number, shard), {})[rank if shard == LOCAL else 0] = x
            everything.extend(list(of_part.values()) for of_part in by_part.values())
        return everything

    def _round_of(self, found: Sequence[tuple[int, Hyperparameters, Tensor, ShardLayout]]) -> dict[Tensor, int]:
        """The rounds of parameters that are to be added, which begin new ones."""
        number, held = len(self._rounds), 0.0
        rounds: dict[Tensor, int] = {}
        for _, _, param, layout in found:
            of_rank = bytes_in_round(param.numel() * param.dtype.itemsize, layout.topology.array)
            if held > 0 and held + of_rank > ROUND_BYTES:
                number, held = number + 1, 0.0
            held += of_rank
            rounds[param] = number
        return rounds

    def _empty(self, number: int) -> None:
        for placed in self._placed.values():
            if placed.round == number and placed.owners is not None and placed.here is not None:
                empty(placed.here)


def reason_for_sharing_nothing(groups: Groups) -> str:
    """Why no rank would have less to do or to hold if ranks shared the plain parameters of groups."""
    members = [
        _member(number, h, param, RankArray((1,), None))
        for number, (params, h) in enumerate(groups)
        for param in params
        if h.distributed == "lossless" and not is_dtensor(param)
    ]
    return str(largest_unit(members))


def is_shared(param: Tensor, h: Hyperparameters) -> bool:
    """Whether ranks share a parameter, or each steps its shard."""
    return is_dtensor(param) or (h.distributed == "lossless" and world_size() > 1)


def gathered_bytes(num_bytes: int, array: RankArray) -> int:
    """Of a parameter of so many, what each rank gets in a gather over replicas."""
    return num_bytes // array.num_shards if array.num_rows > 1 else 0


def bytes_in_round(num_bytes: int, array: RankArray) -> float:
    """What a parameter counts against `ROUND_BYTES`."""
    return max(num_bytes / array.num_ranks, gathered_bytes(num_bytes, array) / _GATHERED)


def _member(number: int, h: Hyperparameters, param: Tensor, array: RankArray) -> Member:
    return Member(number, tuple(param.shape), param.dtype, h, array, param.device.type)


def _placed(param: Tensor, h: Hyperparameters, layout: ShardLayout, owners: Owners | None, number: int) -> Placed:
    found = tuple(regions(layout.shape, h)) if owners is not None else ()
    here: Tensor | None = None
    runs: Runs | None = None
    if owners is None:
        here, number = stand_in(layout.shard_shape(layout.shard), param), LOCAL
    elif layout.topology.number in owners:
        runs = owners[layout.topology.number]
        here = stand_in(layout.shape if runs is None else (num_owned(found, runs),), param)
    reduces = h.reduce_gradients and not is_dtensor(param)
    return Placed(param, layout, owners, here, runs, number, _DTYPES[h.communication_dtype], reduces, found)


def _part(placed: Placed, owner: int, runs: Runs | None) -> OwnedPart:
    layout = placed.layout
    row, place = layout.topology.array.row_and_place(owner)

    @functools.cache
    def of_shard(shard: int) -> list[Box]:
        return boxes(placed.regions, runs, layout.span(shard))

    numel = placed.param.numel() if runs is None else num_owned(placed.regions, runs)
    here = placed.here if owner == layout.topology.number else None
    return OwnedPart(placed.param, row, place, numel, here, of_shard)


def _over_ranks(topology: Topology, own: list[T]) -> list[T]:
    """What all ranks have, by one collective for each dimension of their array."""
    for size, group in zip(topology.array.sizes, topology.groups, strict=True):
        gathered: list[list[T]] = [[] for _ in range(size)]
        dist.all_gather_object(gathered, own, group=group)
        own = list(itertools.chain.from_iterable(gathered))
    return own
