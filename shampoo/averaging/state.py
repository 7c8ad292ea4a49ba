"""Saving and restoring the averaging state of one parameter: counts, tensors, and lists of tensors."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor


def snapshot(state: dict[str, Any]) -> dict[str, Any]:
    """A copy for a checkpoint. Snapshots of LAWA are shared, since they are never written; tensors else are copied."""
    return {
        name: value.clone() if isinstance(value, Tensor) else list(value) if isinstance(value, list) else value
        for name, value in state.items()
    }


def require_fit(saved: dict[str, Any], own: dict[str, Any], param: Tensor, *, index: int) -> None:
    """Checks that a saved state can replace a parameter's own.

    Raises:
        ValueError: other names, shapes or dtypes; the message says which.
    """
    if set(saved) != set(own):
        raise ValueError(f"average of parameter {index} holds {sorted(saved)}, expected {sorted(own)}")
    for name, value in own.items():
        pairs = [(snapshot, param) for snapshot in saved[name]] if isinstance(value, list) else [(saved[name], value)]
        for found, expected in pairs:
            if not isinstance(expected, Tensor):
                continue
            if not isinstance(found, Tensor) or found.shape != expected.shape or found.dtype != expected.dtype:
                described = f"{found.dtype} {tuple(found.shape)}" if isinstance(found, Tensor) else repr(found)
                raise ValueError(
                    f"{name!r} of parameter {index} is {described}, expected {expected.dtype} {tuple(expected.shape)}"
                )


def copy_into(own: dict[str, Any], saved: dict[str, Any], param: Tensor) -> None:
    """Overwrites a parameter's own state with a saved one that fits, keeping device and strides."""
    for name, value in saved.items():
        if isinstance(value, Tensor):
            cast("Tensor", own[name]).copy_(value)
        elif isinstance(value, list):
            # With the parameter's strides, so that the arithmetic is the same as without the interruption.
            own[name] = [torch.empty_like(param, requires_grad=False).copy_(snapshot) for snapshot in value]
        else:
            own[name] = value
