"""The placement of parameters that ranks share: who owns which blocks, and the round in which they are stepped.

It depends only on shapes, hyperparameters and layouts, so it is the same on every rank. The decisions, in order: which
parameters are shared, how many ranks share the plain ones, the layout of each on its ranks, the owners, and the round
of each.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from shampoo.cost import Cost
from shampoo.distributed.assignment import Loads
from shampoo.distributed.boxes import Runs, num_owned
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
from shampoo.distributed.shards import placeholder
from shampoo.distributed.topology import RankArray, of_replicas, world_size
from shampoo.hyperparameters import Hyperparameters
from shampoo.state.blocking import Region, regions

Groups = Sequence[tuple[Sequence[Tensor], Hyperparameters]]

ROUND_BYTES = 64 << 20
"""Weights that a rank owns on average in one round of exchanges. A step holds the weights of two rounds at a time, with
their gradients and buffers: 0.5 GiB in addition to the state."""
_GATHERED = 8
"""At most this multiple of `ROUND_BYTES` is gathered over replicas in a round: 512 MiB, so 1.5 GiB in addition to the
state."""
LOCAL = -1
"""The round of parameters that no other rank takes part in."""
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, slots=True)
class Placement:
    """The owners of one parameter that ranks share, and the part of it that this rank steps."""

    param: Tensor
    layout: ShardLayout
    owners: Owners | None
    """None: every rank steps its shard."""
    placeholder: Tensor | None
    """The tensor that this rank steps in the parameter's place; None: it steps nothing."""
    runs: Runs | None
    """The blocks of the regions that the placeholder holds; None: all."""
    round: int
    communication_dtype: torch.dtype
    reduces: bool
    """Gradients are each rank's own."""
    regions: tuple[Region, ...]
    """Regions of the whole parameter; () where every rank steps its shard."""


@dataclass(frozen=True, slots=True)
class Placements:
    """The placements that parameters will have when they are added."""

    of_param: Mapping[Tensor, Placement]
    loads: Mapping[Hashable, Loads]
    num_rounds: int
    """Rounds of exchanges, including earlier ones."""
    group_size: int | None
    """Ranks that share the work of plain parameters, if their number has been chosen."""

    def costs(self, params: Sequence[Tensor], h: Hyperparameters) -> Iterator[tuple[Tensor, Cost]]:
        """The cost of each of these parameters to this rank, as far as it steps it."""
        known: dict[object, Cost] = {}
        for param in params:
            placement = self.of_param.get(param)
            here = param if placement is None else placement.placeholder
            if here is None:
                continue
            runs = None if placement is None else placement.runs
            # The shape of a part does not determine its cost.
            shape = tuple(here.shape if runs is None else param.shape)
            key = shape, param.dtype, runs
            if key not in known:
                known[key] = cost_of_runs(shape, runs, h, dtype=param.dtype, device=param.device.type)
            yield param, known[key]

    def working_bytes(self) -> int:
        """Bytes that a step needs in addition to the state: the weights and gradients that this rank steps in two
        rounds, as much again for buffers, and everything that is gathered over replicas."""
        by_round: dict[int, int] = {}
        for placement in self.of_param.values():
            if placement.owners is not None:
                num_bytes = gathered_bytes(
                    placement.param.numel() * placement.param.dtype.itemsize, placement.layout.topology.array
                )
                if placement.placeholder is not None:
                    num_bytes += 4 * placement.placeholder.numel() * placement.placeholder.dtype.itemsize
                by_round[placement.round] = by_round.get(placement.round, 0) + num_bytes
        return sum(sorted(by_round.values())[-2:])


@dataclass(frozen=True, slots=True)
class Settled:
    """Owners that have been chosen before, and are kept."""

    owners: Mapping[Tensor, Owners | None]
    """The owners of each shared parameter; None where every rank steps its shard."""
    group_size: int | None


@dataclass(frozen=True, slots=True)
class _Shared:
    """A parameter that ranks share."""

    group: int
    h: Hyperparameters
    param: Tensor
    index: int
    """The parameter's place in its group."""

    def on(self, array: RankArray) -> Member:
        """The parameter as one that needs owners among these ranks."""
        param = self.param
        return Member(self.group, tuple(param.shape), param.dtype, self.h, array, param.device.type)


def place(
    groups: Groups,
    *,
    loads: Mapping[Hashable, Loads],
    num_rounds: int,
    group_size: int | None,
    settled: Settled | None = None,
) -> Placements:
    """Decides where the parameters of groups are stepped.

    Args:
        loads: the loads that ranks have already, by array of ranks.
        num_rounds: rounds of exchanges that there are already; these parameters begin new ones.
        group_size: ranks that share plain parameters, if it was chosen before; 1 is chosen again.
        settled: instead of choosing owners.

    Raises:
        ValueError: a layout is not supported.
    """
    shared = _shared_by_ranks(groups)
    if settled is not None:
        shared, group_size = [one for one in shared if one.param in settled.owners], settled.group_size
    elif group_size in (None, 1):  # 1: earlier ones share nothing, which does not bind later ones
        group_size = _group_size(shared)
    layouts = _layouts(shared, group_size)
    owned = [one for one in shared if one.param in layouts and one.h.distributed != "local"]
    all_loads = {ranks: load.copy() for ranks, load in loads.items()}
    owners = _owners(owned, layouts, all_loads, settled)
    rounds = _rounds(owned, layouts, first=num_rounds)
    return Placements(
        {
            one.param: _placement(one, layouts[one.param], owners.get(one.param), rounds.get(one.param, LOCAL))
            for one in shared
            if one.param in layouts
        },
        all_loads,
        max((number + 1 for number in rounds.values()), default=num_rounds),
        group_size,
    )


def _shared_by_ranks(groups: Groups) -> list[_Shared]:
    return [
        _Shared(number, h, param, index)
        for number, (params, h) in enumerate(groups)
        for index, param in enumerate(params)
        if is_shared(param, h)
    ]


def _group_size(shared: Sequence[_Shared]) -> int | None:
    """The number of ranks that should share plain parameters; None if no parameter needs a choice."""
    members = _without_a_number(shared)
    return choose_group_size(members, world_size()) if members else None


def _without_a_number(shared: Sequence[_Shared]) -> list[Member]:
    """The plain parameters for which no number of ranks was given, as members of a single rank."""
    plain = [one for one in shared if not is_dtensor(one.param)]
    chosen = [one for one in plain if one.h.num_ranks_per_group is None and not one.h.reduce_gradients]
    return [one.on(RankArray((1,), None)) for one in chosen]


def _layouts(shared: Sequence[_Shared], group_size: int | None) -> dict[Tensor, ShardLayout]:
    """The layout of each parameter, except those that every rank steps by itself."""
    found: dict[Tensor, ShardLayout] = {}
    for one in shared:
        if is_dtensor(one.param):
            found[one.param] = layout_of(one.param, index=one.index)
            continue
        size = world_size() if one.h.reduce_gradients else one.h.num_ranks_per_group or group_size or 1
        if size > 1:
            found[one.param] = ShardLayout(of_replicas(size), tuple(one.param.shape))
    return found


def _owners(
    owned: Sequence[_Shared],
    layouts: Mapping[Tensor, ShardLayout],
    loads: dict[Hashable, Loads],
    settled: Settled | None,
) -> dict[Tensor, Owners]:
    """The owners of each parameter; adds what they own to `loads`."""
    owners: dict[Tensor, Owners] = {}
    for ranks in dict.fromkeys(layouts[one.param].topology.ranks for one in owned):
        here = [one for one in owned if layouts[one.param].topology.ranks == ranks]
        members = [one.on(layouts[one.param].topology.array) for one in here]
        load = loads.setdefault(ranks, Loads.none(members[0].ranks.num_ranks))
        if settled is None:
            chosen = owners_of(members, load)
        else:
            chosen = [settled.owners[one.param] or {} for one in here]
            add_loads(members, chosen, load)
        owners.update(zip((one.param for one in here), chosen, strict=True))
    return owners


def _rounds(owned: Sequence[_Shared], layouts: Mapping[Tensor, ShardLayout], *, first: int) -> dict[Tensor, int]:
    """The round of each parameter, from number `first` on."""
    number, held = first, 0.0
    rounds: dict[Tensor, int] = {}
    for one in owned:
        param = one.param
        of_rank = bytes_in_round(param.numel() * param.dtype.itemsize, layouts[param].topology.array)
        if held > 0 and held + of_rank > ROUND_BYTES:
            number, held = number + 1, 0.0
        held += of_rank
        rounds[param] = number
    return rounds


def _placement(one: _Shared, layout: ShardLayout, owners: Owners | None, number: int) -> Placement:
    param = one.param
    found = tuple(regions(layout.shape, one.h)) if owners is not None else ()
    here: Tensor | None = None
    runs: Runs | None = None
    if owners is None:
        here = placeholder(layout.shard_shape(layout.shard), param)
    elif layout.topology.number in owners:
        runs = owners[layout.topology.number]
        here = placeholder(layout.shape if runs is None else (num_owned(found, runs),), param)
    reduces = one.h.reduce_gradients and not is_dtensor(param)
    return Placement(param, layout, owners, here, runs, number, _DTYPES[one.h.communication_dtype], reduces, found)


def reason_for_sharing_nothing(groups: Groups) -> str:
    """The reason why sharing the plain parameters of groups would give no rank less work or state; without those for
    which the number of ranks was given."""
    return str(largest_unit(_without_a_number(_shared_by_ranks(groups))))


def is_shared(param: Tensor, h: Hyperparameters) -> bool:
    """True if ranks share a parameter, or each steps its shard."""
    return is_dtensor(param) or (h.distributed == "lossless" and world_size() > 1)


def gathered_bytes(num_bytes: int, array: RankArray) -> int:
    """Bytes that each rank gets in a gather over replicas, for a parameter of `num_bytes`."""
    return num_bytes // array.num_shards if array.num_replicas > 1 else 0


def bytes_in_round(num_bytes: int, array: RankArray) -> float:
    """Bytes that a parameter of `num_bytes` counts against `ROUND_BYTES`."""
    return max(num_bytes / array.num_ranks, gathered_bytes(num_bytes, array) / _GATHERED)
