"""Models that FSDP2, HSDP and SimpleFSDP shard, trained end to end as a single process trains them."""

from __future__ import annotations

import functools

import pytest
from torch import Tensor

from tests.support.shampoo import models, sharded
from tests.support.shampoo.members import member
from tests.support.trainers.ranks import WarmRanks

NUM_STEPS = 6
# Damping well above rounding: gradients are summed over ranks in another order, and a root enlarges what is small.
CHANGES = {"lr": 0.003, "epsilon": 1e-2, "grafting_epsilon": 1e-4, "weight_decay": 0.1}


@functools.cache
def _alone(name: str) -> list[Tensor]:
    return models.train(None, None, member(name, **CHANGES), NUM_STEPS)


@pytest.mark.parametrize(
    ("mesh", "how", "name"),
    [
        *((mesh, how, "shampoo_adam") for mesh in ("two", "hybrid") for how in ("fully", "simply")),
        *(("three", "fully", name) for name in ("shampoo_adam", "kl", "adam")),
        *(("two", "simply", name) for name in ("soap", "spectral")),
    ],
)
def test_a_sharded_model_trains_as_in_one_process(
    ranks: dict[int, WarmRanks], mesh: str, how: models.Sharding, name: str
) -> None:
    config = member(name, **CHANGES)
    for found in ranks[sharded.num_ranks(mesh)].run(models.train, mesh, how, config, NUM_STEPS):
        assert sharded.difference(found, _alone(name)) <= 1e-5
