"""Steps without any gradient: told where the first ones had none."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from shampoo import Shampoo
from shampoo.gradients import NUM_TOLD_WITHOUT


def _model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 7), nn.Linear(7, 3))


def _loss(model: nn.Module) -> Tensor:
    loss: Tensor = model(torch.ones(2, 6)).square().mean()
    return loss


def test_an_optimizer_of_other_parameters_than_the_models_says_so_once() -> None:
    model = _model()
    optimizer = Shampoo(model.parameters())
    for layer in model:  # as fully_shard does
        for name, param in list(layer.named_parameters()):
            setattr(layer, name, nn.Parameter(param.detach()))

    def step() -> None:
        _loss(model).backward()
        optimizer.step()

    for _ in range(NUM_TOLD_WITHOUT - 1):
        step()
    with pytest.warns(RuntimeWarning, match="none of the optimizer's parameters had a gradient in any of 3 steps"):
        step()
    step()


def test_first_steps_without_gradients_and_frozen_models_are_left_alone() -> None:
    model = _model()
    optimizer = Shampoo(model.parameters())
    for _ in range(NUM_TOLD_WITHOUT - 1):
        optimizer.step()
    _loss(model).backward()
    optimizer.step()
    optimizer.zero_grad()
    model.requires_grad_(False)
    frozen = Shampoo(model.parameters())
    for _ in range(2 * NUM_TOLD_WITHOUT):
        optimizer.step()
        frozen.step()
