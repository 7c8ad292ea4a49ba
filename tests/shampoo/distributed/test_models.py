"""Models that FSDP2, HSDP and SimpleFSDP shard, trained end to end as a single process trains them; FSDP1's are
refused."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FullyShardedDataParallel

from shampoo import Shampoo, param_groups
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


def _refusals(keeps_names: bool) -> list[str]:
    """The answers to a model of `FullyShardedDataParallel`, which plain steps train all the same."""
    model = nn.Sequential(nn.Linear(9, 7), nn.Linear(7, 5))
    flattened = FullyShardedDataParallel(model, use_orig_params=keeps_names, device_id=torch.device("cpu"))
    found: list[str] = []
    with pytest.raises(ValueError, match="has made vectors of all") as refused:
        Shampoo(flattened.parameters())
    found.append(str(refused.value))
    with pytest.raises(ValueError, match="has made vectors of all") as refused:
        param_groups(flattened)
    found.append(str(refused.value))
    loss: Tensor = flattened(torch.ones(2, 9)).sum()
    loss.backward()
    Shampoo(flattened.parameters(), preconditioner="none").step()
    return found


@pytest.mark.parametrize("keeps_names", [False, True])
def test_a_model_whose_matrices_were_flattened_is_refused_and_told_of_fully_shard(
    ranks: dict[int, WarmRanks], keeps_names: bool
) -> None:
    for found in ranks[2].run(_refusals, keeps_names):
        assert all("fully_shard, which leaves matrices what they are" in message for message in found)
