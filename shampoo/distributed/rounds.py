"""The rounds of a step: parameters that ranks share are collected, stepped and handed back some at a time.

While one round is stepped, the next one is collected and the weights of the previous one are handed back.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from shampoo.distributed.boxes import Box, OwnedPart, Runs, boxes, num_owned
from shampoo.distributed.exchange import Exchange
from shampoo.distributed.placement import LOCAL, Placement
from shampoo.distributed.shards import empty, fill, gradient_shard, own_shard
from shampoo.distributed.topology import Topology


class Rounds:
    """The exchanges of each round, and the placeholders that they fill."""

    def __init__(self) -> None:
        self._placements: list[Placement] = []
        self._exchanges: list[dict[tuple[Topology, torch.dtype, bool, torch.device], Exchange]] = []
        self.largest_report: Tensor | None = None
        """The largest report of all ranks, int64 scalar, from the last step; None if a step is not collective."""

    def __len__(self) -> int:
        return len(self._exchanges)

    @property
    def exchanges(self) -> list[Exchange]:
        """The exchanges of all rounds."""
        return [exchange for by_kind in self._exchanges for exchange in by_kind.values()]

    @property
    def shared_on(self) -> torch.device | None:
        """The device of the parameters that a step exchanges with other ranks; None: a step is not collective."""
        return next((exchange.device for exchange in self.exchanges), None)

    def add(self, placements: Sequence[Placement], *, num_rounds: int) -> None:
        """Adds parameters; `num_rounds` is the number of rounds including theirs."""
        self._placements.extend(placements)
        self._exchanges.extend({} for _ in range(num_rounds - len(self._exchanges)))
        for placement in placements:
            if placement.owners is None:
                continue
            topology, dtype = placement.layout.topology, placement.communication_dtype
            key = topology, dtype, placement.reduces, placement.param.device
            by_kind = self._exchanges[placement.round]
            exchange = by_kind.setdefault(key, Exchange(topology, dtype, reduces=placement.reduces))
            for owner, runs in placement.owners.items():
                exchange.add(_part(placement, owner, runs))

    @contextmanager
    def walk(self, report: Callable[[], Tensor] | None = None) -> Iterator[Iterator[int]]:
        """Iterates over rounds, during each of which its placeholders hold weights and gradients; collective.

        Args:
            report: given if placeholders are stepped. Then the weights that owners have stepped are written to the
                parameters of all ranks, and sent with the result of `report`, an int64 scalar on their device, called
                at the end of each round.
        """
        walk = self._walk(report)
        try:
            yield walk
        finally:
            walk.close()
            for exchange in self.exchanges:
                exchange.abandon()
            for placement in self._placements:
                if placement.placeholder is not None:
                    empty(placement.placeholder)

    def norms(self, number: int) -> dict[Tensor, Tensor]:
        """Norms of whole gradients, scalars, by the placeholders of a round that is being stepped, as far as the
        exchange knows them."""
        if number == LOCAL:
            return {}
        return {tensor: x for exchange in self._exchanges[number].values() for tensor, x in exchange.norms.items()}

    def _walk(self, report: Callable[[], Tensor] | None) -> Generator[int]:
        rounds = [list(by_kind.values()) for by_kind in self._exchanges]
        reports: list[Tensor] = []
        if rounds:
            for exchange in rounds[0]:
                exchange.start_collecting()
        for placement in self._placements:
            if placement.owners is None and placement.placeholder is not None:
                fill(placement.placeholder, own_shard(placement.param), gradient_shard(placement.param))
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

    def _empty(self, number: int) -> None:
        for placement in self._placements:
            if placement.round == number and placement.owners is not None and placement.placeholder is not None:
                empty(placement.placeholder)


def _part(placement: Placement, owner: int, runs: Runs | None) -> OwnedPart:
    layout = placement.layout
    owner_replica, owner_shard = layout.topology.array.replica_and_shard(owner)

    @functools.cache
    def of_shard(shard: int) -> list[Box]:
        return boxes(placement.regions, runs, layout.span(shard))

    numel = placement.param.numel() if runs is None else num_owned(placement.regions, runs)
    here = placement.placeholder if owner == layout.topology.number else None
    return OwnedPart(placement.param, owner_replica, owner_shard, numel, here, of_shard)
