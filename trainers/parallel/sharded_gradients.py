"""The norm of gradients of which each rank holds a part.

DTensor is imported where it is needed: it takes half as long as torch itself, and most trials have none.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainers.torch_internals import norms_of, scale


@torch.no_grad()
def clip_sharded_gradients(parameters: Iterable[nn.Parameter], max_norm: float) -> Tensor:
    """Scales the gradients (DTensors on one mesh) down to the global norm `max_norm`, if theirs is larger.

    Gives the norm they had, a float32 scalar, as `torch.nn.utils.clip_grad_norm_` does, whose ε of 1e-6 is kept. One
    number is summed over the ranks that share a copy of the model; nothing waits for the device.
    """
    from torch.distributed.tensor import DTensor, Replicate

    gradients = [parameter.grad for parameter in parameters if isinstance(parameter.grad, DTensor)]
    if not gradients:
        return torch.zeros(())
    mesh, device = gradients[0].device_mesh, gradients[0].device
    sharded: list[Tensor] = []
    replicated: list[Tensor] = []
    for gradient in gradients:
        is_whole = all(isinstance(placement, Replicate) for placement in gradient.placements)
        (replicated if is_whole else sharded).append(gradient.to_local())
    squares = _sum_of_squares(sharded, device)
    dist.all_reduce(squares, group=mesh.get_group("shard"))
    norm = (squares + _sum_of_squares(replicated, device)).sqrt().float()
    factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    scale((local for local in (*sharded, *replicated) if local.numel() > 0), factor)
    return norm


def _sum_of_squares(tensors: list[Tensor], device: torch.device) -> Tensor:
    """The sum of squares in float64, in which adding up tensors and ranks makes no error."""
    tensors = [tensor for tensor in tensors if tensor.numel() > 0]
    if not tensors:
        return torch.zeros((), dtype=torch.float64, device=device)
    return torch.stack(norms_of(tensors)).double().square().sum()
