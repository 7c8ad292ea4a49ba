"""`WeightAveraging` around an optimizer of parameters over ranks: averages lie on the ranks as their parameters do."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from shampoo import Shampoo, WeightAveraging
from shampoo.hyperparameters import Distributed
from tests.support.shampoo import sharded
from tests.support.shampoo.averaging_methods import METHODS
from tests.support.shampoo.members import member
from tests.support.trainers.ranks import WarmRanks

NUM_STEPS = 9


def _averaged(mesh: str | None, method: str, distributed: Distributed, dtype: torch.dtype) -> dict[str, list[Tensor]]:
    weights = sharded.initial_weights(dtype=dtype)
    if mesh is not None:
        mesh_here = sharded.device_mesh(mesh)
        weights = [sharded.over_ranks(x, mesh_here) for x in weights]
    params = [nn.Parameter(x) for x in weights]
    inner = Shampoo(params, **member("shampoo_adam", weight_decay=0.1), distributed=distributed)
    optimizer = WeightAveraging(inner, **METHODS[method])
    for step in range(NUM_STEPS):
        for index, param in enumerate(params):
            G = sharded.gradient(index, step, sharded.SHAPES[index], dtype)
            param.grad = sharded.over_ranks(G, param.device_mesh) if isinstance(param, DTensor) else G
        optimizer.step()
        if step == 6:
            saved = optimizer.state_dict()
            optimizer.load_state_dict(saved)
    with optimizer.averaged_weights():
        averaged = [sharded.whole(param) for param in params]
    return {"averaged": averaged, "trained": [sharded.whole(param) for param in params]}


def _difference(found: dict[str, Any], expected: dict[str, Any]) -> float:
    return max(sharded.difference(found[which], expected[which]) for which in expected)


@pytest.mark.parametrize(
    ("mesh", "method"), [(("three", "hybrid")[number % 2], method) for number, method in enumerate(METHODS)]
)
def test_averages_are_those_of_a_single_process(ranks: dict[int, WarmRanks], mesh: str, method: str) -> None:
    expected = _averaged(None, method, "auto", torch.float32)
    for found in ranks[sharded.num_ranks(mesh)].run(_averaged, mesh, method, "auto", torch.float32):
        assert _difference(found, expected) <= 1e-6


@pytest.mark.parametrize("method", METHODS)
def test_bfloat16_weights_have_the_same_averages_too(ranks: dict[int, WarmRanks], method: str) -> None:
    expected = _averaged(None, method, "auto", torch.bfloat16)
    for found in ranks[2].run(_averaged, "two", method, "auto", torch.bfloat16):
        assert _difference(found, expected) <= 2**-7  # a rounding of bfloat16


@pytest.mark.parametrize("method", ["ema", "lawa", "schedule_free", "primal"])
def test_shards_alone_are_averaged_alike_on_every_replica(ranks: dict[int, WarmRanks], method: str) -> None:
    first, *others = ranks[4].run(_averaged, "hybrid", method, "local", torch.float32)
    assert all(_difference(other, first) == 0 for other in others)
