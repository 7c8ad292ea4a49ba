"""Parameters over ranks with the gradients of a single process, stepped by each rank; the ranks run these functions."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from shampoo import Shampoo

# Equal shapes, sides that no number of ranks divides, fewer rows than ranks, kernels, vectors and a single row.
SHAPES: tuple[tuple[int, ...], ...] = (
    (24, 10),
    (24, 10),
    (24, 10),
    (17, 9),
    (3, 4),
    (1, 5),
    (8, 4, 3, 3),
    (11,),
    (1,),
)
# With sides of 8, blocks of these are whole vector registers, so kernels over elements have no remainder.
EVEN_SHAPES: tuple[tuple[int, ...], ...] = ((24, 16), (24, 16), (40, 8), (8, 64), (8, 4, 4, 4), (128,), (64,))
MESHES: dict[str, tuple[int, ...]] = {"two": (2,), "three": (3,), "four": (4,), "hybrid": (2, 2)}
REPLICAS = {"ddp two": 2, "ddp three": 3, "ddp four": 4}
"""Plain parameters, as under DDP, on this many ranks."""
TOLERANCE = 1e-5
"""Deviation of weights after some 20 steps, relative to the largest of a tensor, if ranks do not stack blocks as one
process does: kernels over elements process the last ones, which do not fill a vector register, differently."""


def num_ranks(mesh: str) -> int:
    return REPLICAS[mesh] if mesh in REPLICAS else math.prod(MESHES[mesh])


def options(mesh: str | None) -> dict[str, Any]:
    """Hyperparameters that share the work among the ranks of a mesh."""
    return {"distributed": "lossless", "num_ranks_per_group": REPLICAS[mesh]} if mesh in REPLICAS else {}


def placed(tensors: Sequence[Tensor], mesh: str | None) -> list[Tensor]:
    """The tensors placed on a mesh; plain for None and for replicas."""
    if mesh is None or mesh in REPLICAS:
        return list(tensors)
    mesh_here = device_mesh(mesh)
    return [over_ranks(tensor, mesh_here) for tensor in tensors]


@functools.cache
def device_mesh(mesh: str) -> DeviceMesh:
    """The mesh of that name among all ranks; one for all calls, since each has its threads and connections."""
    return new_device_mesh(mesh)


def new_device_mesh(mesh: str) -> DeviceMesh:
    sizes = MESHES[mesh]
    return init_device_mesh("cpu", sizes, mesh_dim_names=("replicate", "shard")[-len(sizes) :])


def over_ranks(tensor: Tensor, mesh: DeviceMesh) -> DTensor:
    """Cut over the last dimension of the mesh, replicated over the others; every rank has the same tensor."""
    placements = [Replicate()] * (mesh.ndim - 1) + [Shard(0)]
    return distribute_tensor(tensor, mesh, placements, src_data_rank=None)  # each rank cuts its own: nothing is sent


def like(tensor: Tensor, param: Tensor) -> Tensor:
    """A tensor placed like a parameter."""
    return over_ranks(tensor, param.device_mesh) if isinstance(param, DTensor) else tensor


def initial_weights(shapes: Sequence[tuple[int, ...]] = SHAPES, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    torch.manual_seed(1)
    return [torch.randn(shape).to(dtype) for shape in shapes]


def gradient(index: int, step: int, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
    """The gradient of a loss that has a direction and noise, so that factors are neither flat nor singular."""
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
    device: str = "cpu",
) -> list[Tensor]:
    """The weights after some steps; `change` replaces or removes a gradient, given step and parameter."""
    params = [nn.Parameter(tensor.to(device)) for tensor in placed(initial_weights(shapes, dtype), mesh)]
    optimizer = Shampoo(params, **{**options(mesh), **config})
    for step in range(num_steps):
        for index, param in enumerate(params):
            G: Tensor | None = gradient(index, step, shapes[index], dtype)
            if change is not None:
                assert G is not None
                G = change(step, index, G)
            param.grad = None if G is None else like(G, param).to(device)
        optimizer.step()
    return [whole(param) for param in params]


def difference(found: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """Largest difference of two lists of weights, relative to the largest of each tensor."""
    pairs = [(a, b) for a, b in zip(found, expected, strict=True) if a.numel() > 0]
    return max(((a.double() - b.double()).abs().max() / b.double().abs().max()).item() for a, b in pairs)


def close(found: Sequence[Tensor], expected: Sequence[Tensor]) -> bool:
    """True if two lists of weights are equal up to `TOLERANCE`."""
    return difference(found, expected) <= TOLERANCE
