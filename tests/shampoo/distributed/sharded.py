"""Parameters over ranks with the gradients of a single process, stepped by each rank; runs on the ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from shampoo import Shampoo

# Equal shapes, sides that no number of ranks divides, fewer rows than ranks, kernels, vectors and a row of its own.
SHAPES: tuple[tuple[int, ...], ...] = (
    (24, 10),
    (24, 10),
    (24, 10),
    (17, 9),
    (3, 20),
    (1, 5),
    (8, 4, 3, 3),
    (11,),
    (1,),
)
MESHES: dict[str, tuple[int, ...]] = {"two": (2,), "three": (3,), "four": (4,), "hybrid": (2, 2)}


def num_ranks(mesh: str) -> int:
    return math.prod(MESHES[mesh])


def device_mesh(mesh: str) -> DeviceMesh:
    sizes = MESHES[mesh]
    return init_device_mesh("cpu", sizes, mesh_dim_names=("replicate", "shard")[-len(sizes) :])


def over_ranks(tensor: Tensor, mesh: DeviceMesh) -> DTensor:
    """Cut over the last dimension of the mesh, replicated over the others."""
    placements = [Replicate()] * (mesh.ndim - 1) + [Shard(0)]
    return distribute_tensor(tensor, mesh, placements)


def initial_weights(shapes: Sequence[tuple[int, ...]] = SHAPES, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    torch.manual_seed(1)
    return [torch.randn(shape).to(dtype) for shape in shapes]


def gradient(index: int, step: int, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
    """Of a loss that has a direction and noise, so that factors are neither flat nor singular."""
    generator = torch.Generator().manual_seed(1_000 * step + index)
    drift = torch.linspace(-1, 1, math.prod(shape)).view(shape)
    return (0.3 * drift + torch.randn(shape, generator=generator)).to(dtype)


def whole(param: Tensor) -> Tensor:
    """All of a parameter, on every rank; collective."""
    return (param.full_tensor() if isinstance(param, DTensor) else param).detach().clone()


def state_bytes(optimizer: torch.optim.Optimizer) -> int:
    return sum(
        x.numel() * x.element_size()
        for state in optimizer.state.values()
        for x in state.values()
        if isinstance(x, Tensor)
    )


def train(
    mesh: str | None,
    config: dict[str, Any],
    num_steps: int,
    *,
    shapes: Sequence[tuple[int, ...]] = SHAPES,
    dtype: torch.dtype = torch.float32,
    change: Callable[[int, int, Tensor], Tensor | None] | None = None,
) -> list[Tensor]:
    """The weights after some steps; `change` makes a gradient another one, or none, given step and parameter."""
    mesh_here = None if mesh is None else device_mesh(mesh)

    def placed(tensor: Tensor) -> Tensor:
        return tensor if mesh_here is None else over_ranks(tensor, mesh_here)

    params = [nn.Parameter(placed(tensor)) for tensor in initial_weights(shapes, dtype)]
    optimizer = Shampoo(params, **config)
    for step in range(num_steps):
        for index, param in enumerate(params):
            G: Tensor | None = gradient(index, step, shapes[index], dtype)
            if change is not None:
                assert G is not None
                G = change(step, index, G)
            param.grad = None if G is None else placed(G)
        optimizer.step()
    return [whole(param) for param in params]


def difference(found: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """Largest difference of two lists of weights, relative to the largest of each tensor."""
    pairs = zip(found, expected, strict=True)
    return max(((a.double() - b.double()).abs().max() / b.double().abs().max()).item() for a, b in pairs)
