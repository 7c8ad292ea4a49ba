"""`LoraRite` where ranks share parameters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from shampoo import LoraRite


@pytest.fixture
def _one_rank(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", rank=0, world_size=1, init_method=f"file://{tmp_path / 'meeting_point'}")
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("_one_rank")
def test_a_dtensor_is_refused_by_its_number_and_shape() -> None:
    mesh = init_device_mesh("cpu", (1,))
    factors = [torch.zeros(shape) for shape in ((2, 4), (5, 2))]
    sharded = [distribute_tensor(factor, mesh, [Shard(0)]).requires_grad_() for factor in factors]
    with pytest.raises(ValueError, match=r"parameter 0 of shape \(2, 4\) is a DTensor, .* train with DDP"):
        LoraRite(sharded)
