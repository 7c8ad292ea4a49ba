"""A model that ranks train together on a device, and one process alone; runs on the ranks."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from shampoo import Shampoo
from tests.support.shampoo.models import batch, build, groups


def train(device: str, how: str, config: dict[str, Any], num_steps: int) -> list[Tensor]:
    """The weights after some steps, on the host; each rank takes its part of every batch.

    Args:
        device: of this rank.
        how: `alone`, `ddp` or `fsdp2`.
    """
    model = build().to(device)
    replica: nn.Module = model
    num_parts, part = 1, 0
    if how != "alone":
        num_parts, part = dist.get_world_size(), dist.get_rank()
    if how == "ddp":
        replica = DistributedDataParallel(model, find_unused_parameters=True)
    if how == "fsdp2":
        # Of the group that there is: a mesh made anew is on NCCL where there is a GPU, which two ranks cannot share.
        assert dist.group.WORLD is not None
        fully_shard(model, mesh=DeviceMesh.from_group(dist.group.WORLD, torch.device(device).type))
    optimizer = Shampoo(groups(model), **config)
    for step in range(num_steps):
        tokens, targets = (x.chunk(num_parts)[part].to(device) for x in batch(step))
        optimizer.zero_grad()
        nn.functional.mse_loss(replica(tokens), targets).backward()
        optimizer.step()
    weights = (param.full_tensor() if isinstance(param, DTensor) else param for param in model.parameters())
    return [weight.detach().cpu() for weight in weights]
