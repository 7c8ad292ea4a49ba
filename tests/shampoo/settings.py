"""Complete settings for tests: every keyword argument of `Shampoo`, so that the reference needs no defaults."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from shampoo import Shampoo

DEFAULTS: dict[str, Any] = {
    name: parameter.default
    for name, parameter in inspect.signature(Shampoo).parameters.items()
    if parameter.default is not inspect.Parameter.empty
}

# One tensor of each order; with blocks of at most 8 none merges below its order, and each has uneven pieces.
SHAPES: dict[str, tuple[int, ...]] = {
    "order1": (13,),
    "order2": (11, 19),
    "order3": (5, 9, 7),
    "order4": (3, 5, 4, 6),
}


def settings(**changes: Any) -> dict[str, Any]:
    """The defaults with small blocks and a short refresh period, and these changes."""
    return {**DEFAULTS, "lr": 0.01, "max_preconditioner_dim": 8, "precondition_frequency": 7, **changes}


def parameters(shapes: Sequence[tuple[int, ...]], dtype: torch.dtype = torch.float64) -> list[torch.nn.Parameter]:
    """Standard normal parameters, the same for the same shapes."""
    generator = torch.Generator().manual_seed(1)
    return [
        torch.nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)) for shape in shapes
    ]


def gradients_like(params: list[torch.nn.Parameter], *, step: int) -> list[Tensor]:
    """A noisy quadratic's gradients of very different scales along a tensor: they depend on the weights, so that an
    error in one step is carried into the next."""
    generator = torch.Generator().manual_seed(1000 + step)
    gradients = []
    for param in params:
        noise = torch.randn(param.shape, generator=generator, dtype=torch.float64)
        scales = torch.logspace(-1, 1, param.numel(), dtype=torch.float64).reshape(param.shape)
        gradients.append((scales * (noise + 0.1 * param.detach().double())).to(param.dtype))
    return gradients


def train(optimizer: torch.optim.Optimizer, params: list[torch.nn.Parameter], steps: range) -> None:
    """Steps the optimizer on `gradients_like`."""
    for step in steps:
        for param, gradient in zip(params, gradients_like(params, step=step), strict=True):
            param.grad = gradient
        optimizer.step()
