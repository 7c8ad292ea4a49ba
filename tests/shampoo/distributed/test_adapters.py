"""`LoraRite` on two ranks of DDP: it takes the steps of one process."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from shampoo import LoraRite, lora_param_groups
from tests.support.shampoo.adapters import adapted_model
from tests.support.trainers.ranks import WarmRanks

pytestmark = pytest.mark.processes


def _trained(rank: int, world_size: int, replica: nn.Module, model: nn.Module) -> list[Tensor]:
    optimizer = LoraRite(lora_param_groups(model), lr=0.01, weight_decay=0.1)
    generator = torch.Generator().manual_seed(0)
    for _ in range(8):
        inputs = torch.randn(16, 12, generator=generator, dtype=torch.float64)
        optimizer.zero_grad()
        replica(inputs[rank::world_size]).square().mean().backward()
        optimizer.step()
    return [param.detach() for param in model.parameters()]


def _trained_on_ranks() -> list[Tensor]:
    model = adapted_model().double()
    return _trained(dist.get_rank(), dist.get_world_size(), DistributedDataParallel(model), model)


def test_every_rank_takes_the_steps_of_one_process(ranks: dict[int, WarmRanks]) -> None:
    model = adapted_model().double()
    start = [param.detach().clone() for param in model.parameters()]
    expected = _trained(0, 1, model, model)
    assert sum(not torch.equal(param, before) for param, before in zip(expected, start, strict=True)) >= 4
    one, other = ranks[2].run(_trained_on_ranks)
    for mine, theirs, alone in zip(one, other, expected, strict=True):
        assert torch.equal(mine, theirs)
        torch.testing.assert_close(mine, alone, rtol=0, atol=1e-9)
