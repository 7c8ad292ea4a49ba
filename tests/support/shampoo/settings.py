"""Complete settings for tests: every keyword argument of `Shampoo`, so that the reference needs no defaults."""

from __future__ import annotations

import functools
import inspect
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from shampoo import Shampoo

DEFAULTS: dict[str, Any] = {
    name: parameter.default
    for name, parameter in inspect.signature(Shampoo).parameters.items()
    if parameter.default is not inspect.Parameter.empty
}

# One tensor of each order. With blocks of at most 8, no tensor merges to a lower order, and each has several pieces,
# uneven ones for the matrix. No side of a block is longer than the product of the others plus one. So every factor has
# full rank after one gradient, except the longer ones of matrices, which lack one dimension: eigenvectors are defined,
# up to their signs. From two gradients on all factors have full rank.
SHAPES: dict[str, tuple[int, ...]] = {
    "order1": (13,),
    "order2": (11, 12),
    "order3": (5, 9, 7),
    "order4": (3, 5, 4, 6),
}


def settings(**changes: Any) -> dict[str, Any]:
    """The defaults with small blocks and a short refresh period, if the member has them, and these changes."""
    small: dict[str, Any] = {"lr": 0.01}
    if changes.get("preconditioner") != "none":
        small["max_preconditioner_dim"] = 8
    if changes.get("preconditioner") not in ("none", "spectral"):
        small["precondition_frequency"] = 7
    return {**DEFAULTS, **small, **changes}


def parameters(shapes: Sequence[tuple[int, ...]], dtype: torch.dtype = torch.float64) -> list[torch.nn.Parameter]:
    """Standard normal parameters, the same for the same shapes."""
    generator = torch.Generator().manual_seed(1)
    return [
        torch.nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)) for shape in shapes
    ]


def gradients_like(params: list[torch.nn.Parameter], *, step: int) -> list[Tensor]:
    """Gradients of a noisy quadratic, with very different scales along a tensor: they depend on the weights, so an
    error in one step is carried into the next."""
    drawn = _noise_and_scales(tuple(param.shape for param in params), step)
    return [
        (scales * (noise + 0.1 * param.detach().double())).to(param.dtype)
        for param, (noise, scales) in zip(params, drawn, strict=True)
    ]


@functools.lru_cache(maxsize=256)  # the tests of a file share shapes and steps
def _noise_and_scales(shapes: tuple[tuple[int, ...], ...], step: int) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1000 + step)
    return [
        (
            torch.randn(shape, generator=generator, dtype=torch.float64),
            torch.logspace(-1, 1, math.prod(shape), dtype=torch.float64).reshape(shape),
        )
        for shape in shapes
    ]


def train(optimizer: torch.optim.Optimizer, params: list[torch.nn.Parameter], steps: range) -> None:
    """Steps the optimizer on `gradients_like`."""
    for step in steps:
        for param, gradient in zip(params, gradients_like(params, step=step), strict=True):
            param.grad = gradient
        optimizer.step()


def pairwise(options: Mapping[str, Mapping[str, dict[str, Any]]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Combinations in which any two choices of two options occur together at least once.

    Args:
        options: {name of an option: {name of a choice: the settings of this choice}}.

    Yields:
        A combination's name, "choice-choice-...", and all that its choices set. Each begins with two choices that have
        not met, and takes for every other option the choice that meets most others for the first time.
    """
    strangers = {
        frozenset({(one, a), (other, b)}): None
        for one, other in itertools.combinations(options, 2)
        for a in options[one]
        for b in options[other]
    }
    while strangers:
        chosen = dict(sorted(next(iter(strangers))))
        for name in options:
            if name not in chosen:
                news = {
                    choice: sum(frozenset({(name, choice), met}) in strangers for met in chosen.items())
                    for choice in options[name]
                }
                chosen[name] = max(news, key=lambda choice: news[choice])
        for pair in itertools.combinations(chosen.items(), 2):
            strangers.pop(frozenset(pair), None)
        yield (
            "-".join(chosen[name] for name in options),
            {key: value for name in options for key, value in options[name][chosen[name]].items()},
        )
