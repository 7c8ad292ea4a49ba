"""Helpers that the tests of weight averaging share: a setting of every method, optimizers to wrap, and comparisons."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from shampoo import Shampoo
from shampoo.averaging import WeightAveraging
from shampoo.hyperparameters import Preconditioner

SHAPES = [(5, 7), (11,), (2, 3, 4), (), (0, 3)]


METHODS: dict[str, dict[str, Any]] = {
    "ema": {"method": "ema", "decay": 0.9, "update_frequency": 2},
    "lawa": {"method": "lawa", "num_snapshots": 3, "update_frequency": 2},
    "schedule_free": {"method": "schedule_free"},
    "schedule_free at z": {"method": "schedule_free", "weight_decay_at": "z"},
    "primal": {"method": "primal", "mu_x": 0.8},
    "primal at y": {"method": "primal", "mu_x": 0.8, "weight_decay_at": "y"},
}

_WITH_FACTORS: tuple[Preconditioner, ...] = ("shampoo", "soap", "kl")

INNER: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda params: torch.optim.SGD(params, lr=0.02, momentum=0.5, weight_decay=0.1),
    "adamw": lambda params: torch.optim.AdamW(params, lr=0.02, betas=(0.0, 0.9), weight_decay=0.1),
    **{
        member: functools.partial(Shampoo, lr=0.02, weight_decay=0.1, preconditioner=member, precondition_frequency=3)
        for member in _WITH_FACTORS
    },
    # The length of its steps does not depend on the gradient's, so 100 of them must be long enough to reach the
    # minimum.
    "spectral": lambda params: Shampoo(params, lr=0.05, weight_decay=0.1, preconditioner="spectral"),
}


def values(params: list[torch.nn.Parameter]) -> list[Tensor]:
    return [param.detach().clone() for param in params]


def averaged(optimizer: WeightAveraging, params: list[torch.nn.Parameter]) -> list[Tensor]:
    with optimizer.averaged_weights():
        return values(params)


def assert_equal(found: list[Any], expected: list[Any]) -> None:
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b)


def assert_close(found: list[Any], expected: list[Any], *, atol: float) -> None:
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert torch.isfinite(a).all()
        torch.testing.assert_close(a.detach().double(), b.detach().double(), rtol=0, atol=atol)


def assert_same(a: Any, b: Any) -> None:
    assert type(a) is type(b)
    if isinstance(a, Tensor):
        assert a.dtype == b.dtype
        assert torch.equal(a, b)
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            assert_same(a[key], b[key])
    elif isinstance(a, list):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_same(x, y)
    else:
        assert a == b
