"""A workload's loss that cannot be trained on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from trainers.config import OptimizerConfig, TrialConfig
from trainers.loop import train
from trainers.memory.activations import activation_bytes
from trainers.ranks.context import single_process_context
from trainers.workloads.digits.digits import DigitsMLP
from trainers.workloads.registry import load

SPOILED: dict[str, tuple[Callable[[Tensor], object], str]] = {
    "a number": (lambda loss: loss.item(), r"got a float: give the tensor, without \.item\(\)"),
    "of each example": (lambda loss: loss.expand(3), r"got the shape \(3,\): take the mean over the batch"),
    "without a gradient": (lambda loss: loss.detach(), "got one without: compute it from the model"),
}
CONFIG = TrialConfig(
    workload="digits-mlp", optimizer=OptimizerConfig("adamw"), num_steps=2, batch_size=8, evaluate_every=1
)


@pytest.mark.parametrize("name", SPOILED)
def test_a_loss_that_cannot_be_trained_on_is_told_by_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil, message = SPOILED[name]
    whole = DigitsMLP.loss

    def loss(self: DigitsMLP, model: nn.Module, batch: Any) -> object:
        return spoil(whole(self, model, batch))

    monkeypatch.setattr(DigitsMLP, "loss", loss)
    said = r"DigitsMLP\.loss must give one number as a tensor with a gradient, " + message
    with pytest.raises(ValueError, match=said):
        list(train(CONFIG, single_process_context()))
    with pytest.raises(ValueError, match=said):  # the step of a dry run
        activation_bytes(CONFIG, load("digits-mlp", {}), model_bytes=0, world_size=1)


def test_one_number_in_a_vector_is_trained_on_as_torch_does(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = DigitsMLP.loss
    expected = [measured.metrics["validation_loss"] for measured in train(CONFIG, single_process_context())]
    monkeypatch.setattr(DigitsMLP, "loss", lambda *given: torch.atleast_1d(whole(*given)))
    found = [measured.metrics["validation_loss"] for measured in train(CONFIG, single_process_context())]
    assert found == expected


def test_a_parameter_that_the_loss_unfreezes_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    # It has no place in the optimizer, and on several ranks none in what they exchange: it would silently stay.
    build_model, whole = DigitsMLP.build_model, DigitsMLP.loss

    def partly_frozen(self: DigitsMLP) -> nn.Module:
        model = build_model(self)
        name, first = next(model.named_parameters())
        first.requires_grad_(False)
        names.append(name)
        return model

    def loss(self: DigitsMLP, model: nn.Module, batch: Any) -> Tensor:
        if unfreezes:
            model.requires_grad_(True)
        return whole(self, model, batch)

    monkeypatch.setattr(DigitsMLP, "build_model", partly_frozen)
    monkeypatch.setattr(DigitsMLP, "loss", loss)
    names: list[str] = []
    unfreezes = False
    trial = train(CONFIG, single_process_context())
    next(trial)
    unfreezes = True
    with pytest.raises(ValueError, match=f"^parameter {names[0]} had been frozen when the optimizer was built: with a"):
        next(trial)
