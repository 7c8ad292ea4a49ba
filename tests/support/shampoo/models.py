"""A small model that ranks train together, by FSDP2, HSDP or as SimpleFSDP shards it; runs on the ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate
from torch.nn.utils import parametrize

from shampoo import Shampoo
from tests.support.shampoo.sharded import device_mesh, over_ranks, whole

Sharding: TypeAlias = Literal["fully", "simply"]


class Residual(nn.Module):
    """x + tanh(Wx + b)"""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        change: Tensor = self.linear(x).tanh()
        return x + change


class Model(nn.Module):
    """An embedding, two equal layers, a convolution, a norm, a layer that is never used and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(13, 12)
        self.layers = nn.ModuleList([Residual(12), Residual(12)])
        self.convolution = nn.Conv1d(4, 6, 3)
        self.norm = nn.LayerNorm(6)
        self.unused = nn.Linear(3, 5)
        self.head = nn.Linear(6, 1)

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens: (batch, 4) int64; gives (batch, 1)."""
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(self.convolution(x).mean(dim=2)))  # type: ignore[no-any-return]


def build() -> Model:
    torch.manual_seed(5)
    return Model()


def batch(step: int) -> tuple[Tensor, Tensor]:
    """Of 24 examples, for all ranks together."""
    generator = torch.Generator().manual_seed(step)
    tokens = torch.randint(13, (24, 4), generator=generator)
    return tokens, tokens.float().mean(dim=1, keepdim=True) / 13


class _Gather(nn.Module):
    """SimpleFSDP: a parameter is used whole, and its gradient is the mean over the ranks."""

    def __init__(self, mesh: DeviceMesh) -> None:
        super().__init__()
        self._mesh = mesh

    def forward(self, shard: DTensor) -> Tensor:
        everywhere = shard.redistribute(placements=[Replicate()] * self._mesh.ndim)
        return everywhere.to_local(grad_placements=[Partial("avg")] * self._mesh.ndim)


def shard(model: Model, how: Sharding, mesh: DeviceMesh) -> Model:
    if how == "fully":
        for layer in model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        return model
    for module in list(model.modules()):
        for name, parameter in list(module.named_parameters(recurse=False)):
            setattr(module, name, nn.Parameter(over_ranks(parameter.detach(), mesh)))
            parametrize.register_parametrization(module, name, _Gather(mesh), unsafe=True)
    return model


def groups(model: Model) -> list[dict[str, Any]]:
    """Hidden matrices, and everything else by plain AdamW."""
    hidden = [*model.layers.parameters(), *model.convolution.parameters()]
    matrices = [param for param in hidden if param.dim() > 1]
    others = [param for param in model.parameters() if all(param is not matrix for matrix in matrices)]
    return [{"params": matrices}, {"params": others, "preconditioner": "none"}]


def train(
    mesh: str | None,
    how: Sharding | None,
    config: dict[str, Any],
    num_steps: int,
    make: Callable[..., torch.optim.Optimizer] = Shampoo,
) -> list[Tensor]:
    """The weights after some steps, each rank with its part of every batch."""
    model = build()
    num_parts, part = 1, 0
    if mesh is not None:
        mesh_here = device_mesh(mesh)
        assert how is not None
        model = shard(model, how, mesh_here)
        num_parts, part = mesh_here.size(), torch.distributed.get_rank()
    optimizer = make(groups(model), **config)
    for step in range(num_steps):
        tokens, targets = (x.chunk(num_parts)[part] for x in batch(step))
        optimizer.zero_grad()
        nn.functional.mse_loss(model(tokens), targets).backward()
        optimizer.step()
    return [whole(param) for param in model.parameters()]
