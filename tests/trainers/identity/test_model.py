"""The digest of a model: what tells two models apart, and what does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from trainers.identity.model import model_digest


def mlp(*, width: int = 8, activation: type[nn.Module] = nn.ReLU, dropout: float = 0.0) -> nn.Sequential:
    drop = [nn.Dropout(dropout)] if dropout else []
    return nn.Sequential(nn.Linear(4, width), activation(), *drop, nn.Linear(width, 2))


def frozen() -> nn.Module:
    model = mlp()
    model[0].weight.requires_grad_(False)
    return model


def tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    return model


def on_meta() -> nn.Module:
    with torch.device("meta"):
        return mlp()


def with_other_values() -> nn.Module:
    torch.manual_seed(7)
    return mlp()


def with_other_names() -> nn.Module:
    return nn.ModuleDict({"b": nn.Linear(8, 2), "act": nn.ReLU(), "a": nn.Linear(4, 8)})


@pytest.mark.parametrize(
    "build", [mlp, on_meta, with_other_values, with_other_names, lambda: mlp(dropout=0.3)], ids=lambda f: f.__name__
)
def test_values_names_order_device_and_dropout_are_nothing_to_a_models_digest(build: Callable[[], nn.Module]) -> None:
    assert model_digest(build()) == model_digest(mlp())


@pytest.mark.parametrize(
    "build",
    [
        lambda: mlp(width=9),
        lambda: mlp(activation=nn.GELU),
        lambda: mlp().double(),
        frozen,
        lambda: nn.Sequential(mlp(), mlp()),
    ],
)
def test_shapes_kinds_dtypes_and_what_is_trained_tell_models_apart(build: Callable[[], nn.Module]) -> None:
    assert model_digest(build()) != model_digest(mlp())


def test_a_shared_parameter_counts_once() -> None:
    separate = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    assert model_digest(tied()) != model_digest(separate)


def test_modules_of_another_kind_with_parameters_of_equal_shapes_differ() -> None:
    assert model_digest(nn.LayerNorm(8)) != model_digest(nn.GroupNorm(2, 8))
