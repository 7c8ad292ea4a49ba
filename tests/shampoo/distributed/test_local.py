"""distributed="local": every rank steps its rows as if they were the parameter, and sends nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from shampoo import Shampoo
from tests.support.shampoo import sharded
from tests.support.shampoo.members import REPRESENTATIVES, member
from tests.support.trainers.ranks import WarmRanks

NUM_STEPS = 8


def _both(mesh_name: str, config: dict[str, Any]) -> tuple[list[Tensor], list[Tensor], list[int]]:
    """This rank's rows after training them as shards and as parameters by hand, and the bytes of state of both."""
    mesh = sharded.device_mesh(mesh_name)
    shards = [nn.Parameter(sharded.over_ranks(x, mesh)) for x in sharded.initial_weights()]
    by_hand = [nn.Parameter(_rows(shard).clone()) for shard in shards]
    optimizers = Shampoo(shards, **config, distributed="local"), Shampoo(by_hand, **config)
    group = dist.distributed_c10d._get_default_group()
    # torch's stubs of ProcessGroup leave it out.
    num_sent: Callable[[], int] = group._get_sequence_number_for_group  # type: ignore[attr-defined]
    before = num_sent()
    for step in range(NUM_STEPS):
        gradients = [
            sharded.over_ranks(sharded.gradient(index, step, shape), mesh) for index, shape in enumerate(sharded.SHAPES)
        ]
        before = num_sent()
        for param, own, G in zip(shards, by_hand, gradients, strict=True):
            param.grad = G
            own.grad = G.to_local().clone()
        for optimizer in optimizers:
            optimizer.step()
        assert num_sent() == before
    sizes = [sharded.state_bytes(optimizer) for optimizer in optimizers]
    return [_rows(shard).clone() for shard in shards], [own.detach() for own in by_hand], sizes


def _rows(shard: Tensor) -> Tensor:
    assert isinstance(shard, DTensor)
    return shard.to_local().detach()


@pytest.mark.parametrize(
    ("mesh", "name"),
    [
        *((mesh, "shampoo_adam") for mesh in ("two", "hybrid")),
        *(("three", name) for name in REPRESENTATIVES),  # with shards of unequal size
    ],
)
def test_it_is_the_optimizer_of_the_shards(ranks: dict[int, WarmRanks], mesh: str, name: str) -> None:
    for shards, by_hand, sizes in ranks[sharded.num_ranks(mesh)].run(_both, mesh, member(name, weight_decay=0.1)):
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(shards, by_hand, strict=True))
        assert sizes[0] == sizes[1]


def test_shards_without_rows_are_left_alone(ranks: dict[int, WarmRanks]) -> None:
    for shards, by_hand, _ in ranks[4].run(_both, "four", member("shampoo_adam")):
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(shards, by_hand, strict=True))
