"""This rank's shard of a parameter, and placeholders: tensors that are stepped in place of one."""

from __future__ import annotations

import torch
from torch import Tensor

from shampoo.distributed.layout import is_dtensor
from shampoo.torch_internals import waited_for


@torch.no_grad()
def local_part(tensor: Tensor) -> Tensor:
    """The part of any tensor that this rank holds: a DTensor's shard, in its memory; all of any other."""
    return tensor.to_local() if is_dtensor(tensor) else tensor


def own_shard(param: Tensor) -> Tensor:
    """This rank's rows as a plain tensor of the parameter's own memory; all of a plain parameter."""
    return waited_for(param.to_local()).detach() if is_dtensor(param) else param.detach()


def gradient_shard(param: Tensor) -> Tensor | None:
    """This rank's rows of the gradient, if there is one.

    Raises:
        RuntimeError: the gradient has another layout on the mesh than its parameter, or another dtype.
    """
    gradient = param.grad
    if gradient is None or not is_dtensor(param):
        return None if gradient is None else gradient.detach()
    where = f"parameter of shape {tuple(param.shape)} and placements {param.placements}"
    if not is_dtensor(gradient):
        raise RuntimeError(f"the gradient of a {where} is no DTensor")
    if gradient.placements != param.placements or gradient.device_mesh != param.device_mesh:
        raise RuntimeError(f"the gradient of a {where} has placements {gradient.placements}: redistribute it")
    if gradient.dtype != param.dtype:
        raise RuntimeError(f"the gradient of a {where} is {gradient.dtype}, expected {param.dtype}")
    return waited_for(gradient.to_local()).detach()


def placeholder(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """A tensor to be filled during a step; otherwise its memory is one element."""
    return torch.empty((), dtype=like.dtype, device=like.device).expand(shape)


def fill(held: Tensor, weights: Tensor, gradient: Tensor | None) -> None:
    """Gives a placeholder memory; None: no gradient."""
    held.grad = None
    held.data = weights
    held.grad = gradient


def empty(held: Tensor) -> None:
    """Frees the memory of a placeholder."""
    fill(held, placeholder(tuple(held.shape), held), None)
