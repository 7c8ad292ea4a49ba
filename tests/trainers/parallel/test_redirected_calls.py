"""Losses that use the model's attributes, methods and parts: as on one rank, so on several."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.support.trainers.parallel.own_losses import (
    Trained,
    WithTeacher,
    adds_up_parameters,
    losses_of_adversaries,
    of_adversaries,
    of_call,
    of_copies,
    of_parts,
    skipped_later,
    train_with,
)
from tests.support.trainers.parallel.training import batch_of
from tests.support.trainers.ranks import WarmRanks
from tests.support.trainers.trials import assert_same_bits
from trainers.ranks.context import single_process_context


def without_statistics() -> nn.Module:
    """The model without batch normalisation, so that ranks with half a batch do as one with all of it."""
    model = WithTeacher()
    model.student[1] = nn.Tanh()
    model.teacher[1] = nn.Tanh()
    return model


def two_layers() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 17), nn.Linear(17, 17))


def assert_equals(by_rank: list[Trained], alone: Trained) -> None:
    """The mean over ranks rounds otherwise: weights are of order 1, and three steps of SGD enlarge that little."""
    for trained in by_rank:
        assert_same_bits(trained.parameters, by_rank[0].parameters)
        for name, parameter in alone.parameters.items():
            torch.testing.assert_close(trained.parameters[name], parameter, rtol=0, atol=1e-5)
        assert trained.class_names == alone.class_names


@pytest.mark.parametrize(
    ("make", "loss_of", "mode"),
    [
        (without_statistics, of_call, "ddp"),
        (without_statistics, of_parts, "ddp"),
        (two_layers, of_copies, "ddp"),
        (without_statistics, of_call, "simple_fsdp"),
        (without_statistics, of_parts, "simple_fsdp"),
    ],
)
def test_a_loss_uses_the_model_on_two_ranks_as_on_one(
    two_ranks: WarmRanks, make: Callable[[], nn.Module], loss_of: Callable[[Any, Tensor, Tensor], Tensor], mode: str
) -> None:
    alone = train_with(make, loss_of, "ddp", single_process_context())
    assert_equals(two_ranks.run(train_with, make, loss_of, mode), alone)


def test_two_networks_in_one_model_learn_from_their_own_losses_in_every_mode(two_ranks: WarmRanks) -> None:
    torch.manual_seed(0)
    model, batch = two_layers(), batch_of(0)
    parameters = list(model.parameters())
    together = torch.autograd.grad(of_adversaries(model, *batch), parameters)
    generator, critic = losses_of_adversaries(model, *batch)
    own = torch.autograd.grad(generator, parameters[:2], retain_graph=True)
    torch.testing.assert_close(together, own + torch.autograd.grad(critic, parameters[2:]))

    alone = train_with(two_layers, of_adversaries, "ddp", single_process_context())
    for mode in ("ddp", "fsdp2", "simple_fsdp"):
        for trained in two_ranks.run(train_with, two_layers, of_adversaries, mode):
            torch.testing.assert_close(trained.parameters, alone.parameters, rtol=0, atol=1e-5)


def test_ranks_have_the_same_buffers_if_the_model_is_never_called(two_ranks: WarmRanks) -> None:
    one, other = two_ranks.run(train_with, WithTeacher, of_parts)
    assert_same_bits(one.parameters, other.parameters)
    assert_same_bits(one.buffers, other.buffers)
    assert_same_bits(one.buffers["centre"], torch.ones(17))


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is ")  # the compiler's own, on being imported
def test_a_loss_uses_a_compiled_model_as_it_does_a_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    # Which of the model's parts a loss reaches is settled when it is traced, forward and backward. `test_compilation`
    # holds the kernels that inductor makes of a trace to eager ones; making them again takes most of the time.
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="aot_eager"))
    context = single_process_context()
    alone = train_with(without_statistics, of_call, "ddp", context)
    assert_equals([train_with(without_statistics, of_call, "ddp", context, compiles=True)], alone)


def test_a_gradient_that_a_later_step_lacks_is_an_error_that_names_the_parameter(two_ranks: WarmRanks) -> None:
    for message in two_ranks.run(skipped_later, [True, True]):
        assert message.startswith("parameter second.weight and 1 more had a gradient in the first step and none now: ")


@pytest.mark.parametrize("mode", ["fsdp2", "simple_fsdp"])
def test_a_loss_that_uses_parts_of_parameters_is_told_what_to_do(two_ranks: WarmRanks, mode: str) -> None:
    for message in two_ranks.run(adds_up_parameters, mode):
        assert "mixed torch.Tensor and DTensor" in message
        assert "(the loss uses a parameter outside of the call of its module, where this rank has only its" in message


def test_a_loss_may_use_parameters_of_replicas(two_ranks: WarmRanks) -> None:
    assert two_ranks.run(adds_up_parameters, "ddp") == ["", ""]
