"""What this rank holds of a parameter, and the tensors that are stepped in its place."""

from __future__ import annotations

import torch
from torch import Tensor

from shampoo.distributed.layout import is_dtensor
from shampoo.step.weights import gradient_of


def own_shard(param: Tensor) -> Tensor:
    """This rank's rows as a plain tensor of the parameter's own memory; of a plain parameter all of it."""
    return _awaited(param.to_local()).detach() if is_dtensor(param) else param.detach()


def gradient_shard(param: Tensor) -> Tensor | None:
    """The same rows of the gradient, if there is one.

    Raises:
        RuntimeError: the gradient is sparse, lies otherwise on the mesh than its parameter, or has another dtype.
    """
    gradient = gradient_of(param)
    if gradient is None or not is_dtensor(param):
        return None if gradient is None else gradient.detach()
    where = f"parameter of shape {tuple(param.shape)} and placements {param.placements}"
    if not is_dtensor(gradient):
        raise RuntimeError(f"the gradient of a {where} is no DTensor")
    if gradient.placements != param.placements or gradient.device_mesh != param.device_mesh:
        raise RuntimeError(f"the gradient of a {where} has placements {gradient.placements}: redistribute it")
    if gradient.dtype != param.dtype:
        raise RuntimeError(f"the gradient of a {where} is {gradient.dtype}, expected {param.dtype}")
    return _awaited(gradient.to_local()).detach()


def stand_in(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """A tensor to be filled for the time of a step; its memory until then is one element."""
    return torch.empty((), dtype=like.dtype, device=like.device).expand(shape)


def fill(stand_in: Tensor, weights: Tensor, gradient: Tensor | None) -> None:
    """Gives a stand-in memory; None: no gradient."""
    stand_in.grad = None
    stand_in.data = weights
    stand_in.grad = gradient


def empty(stand_in_: Tensor) -> None:
    """Takes a stand-in its memory."""
    fill(stand_in_, stand_in(tuple(stand_in_.shape), stand_in_), None)


def _awaited(tensor: Tensor) -> Tensor:
    # Collectives of autograd give a tensor that waits for them when it is first used.
    from torch.distributed._functional_collectives import AsyncCollectiveTensor

    return tensor.wait() if isinstance(tensor, AsyncCollectiveTensor) else tensor
