"""The scaling rules: exponents by whose step length it is, and what stays."""

from __future__ import annotations

import math
from typing import Any

import pytest

from search_spaces.shipped.algoperf import POINTS
from service.transfer.rules import StepKind, TunedConfig, moved, step_kind
from service.transfer.situation import OF_BATCH, OF_DEPTH, OF_LENGTH, Situation, distance, features_of
from shampoo import Shampoo
from trainers.identity.values import ModelShape, ParameterShape


def situation(width: int = 64, *, layers: int = 4, batch_size: int = 32, num_steps: int = 1000) -> Situation:
    """Of a model of `layers` square matrices."""
    shape = ModelShape((ParameterShape("linear", (width, width), layers), ParameterShape("vector", (width,), layers)))
    return Situation.of(shape, batch_size=batch_size, num_steps=num_steps, workload="w")


def config(optimizer: str = "shampoo", **arguments: Any) -> TunedConfig:
    return TunedConfig(optimizer, {"lr": 1e-2, "betas": [0.9, 0.99], **arguments}, {"warmup_fraction": 0.05})


def lr_factor(given: TunedConfig, target: Situation) -> float:
    return float(moved(given, situation(), target)[0].arguments["lr"] / given.arguments["lr"])


ADAM, SGD = config(grafting="adam"), config(grafting="sgd", betas=[0.0, 0.99])


@pytest.mark.parametrize(
    ("given", "kind", "by_width", "by_depth", "by_batch"),
    [
        (ADAM, StepKind.ADAM, 1 / 8, 1 / 2, 2),
        (config("adamw"), StepKind.ADAM, 1 / 8, 1 / 2, 2),
        (SGD, StepKind.SGD, 1, 4, 4),
        (config(preconditioner="none", grafting="sgd"), StepKind.SGD, 1, 4, 4),
        (config(preconditioner="none"), StepKind.ADAM, 1 / 8, 1 / 2, 2),
        (config(preconditioner="soap", max_preconditioner_dim=512), StepKind.EIGENBASIS, 8**-0.75, 1 / 2, 2),
        (config(preconditioner="soap", max_preconditioner_dim=128), StepKind.EIGENBASIS, 2**0.25 / 8, 1 / 2, 2),
        (config(preconditioner="spectral"), StepKind.SPECTRAL, 8**-0.5, 1 / 2, 2),
        (config("muon"), StepKind.SPECTRAL, 8**-0.5, 1 / 2, 2),
        (config("lora-rite"), StepKind.SPECTRAL, 8**-0.5, 1 / 2, 2),
        (config(grafting="none", max_preconditioner_dim=128), StepKind.NONE, 1 / 4, 1, 2),
    ],
)
def test_the_learning_rate_goes_as_its_step_length_asks(
    given: TunedConfig, kind: StepKind, by_width: float, by_depth: float, by_batch: float
) -> None:
    assert step_kind(given.optimizer, given.arguments) is kind
    assert lr_factor(given, situation(8 * 64)) == pytest.approx(by_width, rel=1e-3)
    assert lr_factor(given, situation(layers=16)) == pytest.approx(by_depth, rel=1e-3)
    assert lr_factor(given, situation(batch_size=128, num_steps=250)) == pytest.approx(by_batch, rel=1e-3)
    longer = 1.0 if kind in (StepKind.SGD, StepKind.NONE) else 10**-0.32
    assert lr_factor(given, situation(num_steps=10_000)) == pytest.approx(longer, rel=1e-3)
    assert lr_factor(given, situation(batch_size=128, num_steps=2500)) == pytest.approx(by_batch * longer, rel=1e-3)


def of_matrices(*shapes: tuple[int, ...]) -> Situation:
    shape = ModelShape(
        tuple(sorted(ParameterShape("linear" if len(one) == 2 else "convolution", one, 1) for one in shapes))
    )
    return Situation.of(shape, batch_size=32, num_steps=1000, workload="w")


@pytest.mark.parametrize(("given", "exponent"), [(ADAM, 1), (config("muon"), 1 / 2)])
def test_a_layer_whose_inputs_stay_asks_for_no_other_learning_rate(given: TunedConfig, exponent: float) -> None:
    """As the first layer of an MLP, which takes in as many pixels as before: two of its three matrices grow."""
    narrow, wide = (of_matrices((width, 64), (width // 2, width), (10, width // 2)) for width in (32, 256))
    found, changes = moved(given, narrow, wide)
    assert found.arguments["lr"] == pytest.approx(1e-2 * 8 ** (-2 / 3 * exponent), rel=1e-3)
    assert "fan-in × 4" in changes[0].reason


def test_a_kernel_takes_in_its_inputs_times_its_size() -> None:
    found, _ = moved(ADAM, of_matrices((64, 32, 1, 1)), of_matrices((64, 32, 3, 3)))
    assert found.arguments["lr"] == pytest.approx(1e-2 / 9, rel=1e-3)


def test_the_batchs_factor_is_bounded() -> None:
    assert lr_factor(ADAM, situation(batch_size=32 * 100, num_steps=10)) == pytest.approx(4)
    assert lr_factor(SGD, situation(batch_size=1)) == pytest.approx(1 / 4)


def test_nothing_changes_where_nothing_differs() -> None:
    given = config(grafting="adam", weight_decay=0.1, precondition_frequency=10, epsilon=1e-8, epsilon_type="absolute")
    assert moved(given, situation(), situation()) == (given, [])


def test_what_a_config_leaves_to_the_optimizers_defaults_moves_from_there() -> None:
    assert moved(TunedConfig("shampoo", {}, {}), situation(), situation())[0].arguments == {"lr": 0.0015}
    wide = situation(8 * 64, batch_size=64)
    found, changes = moved(TunedConfig("shampoo", {"epsilon_type": "absolute"}, {}), situation(), wide)
    assert {change.name for change in changes} == {"lr", "betas[0]", "betas[1]", "epsilon"}
    assert found.arguments["epsilon"] == pytest.approx(5e-7)
    assert found.arguments["lr"] == pytest.approx(0.0015 * 2**0.5 / 8 * 2**-0.32, rel=1e-3)
    assert "weight_decay" in moved(TunedConfig("soap-peer", {}, {}), situation(), wide)[0].arguments


def test_averages_keep_their_half_life_in_examples_and_the_refresh_its_examples() -> None:
    given = config(grafting="adam", precondition_frequency=40, beta3=0.81, momentum=0.5, nesterov=True)
    found, changes = moved(given, situation(), situation(batch_size=128))
    assert found.arguments["betas"] == [0.8, 0.96]  # 1 - 0.9 may reach 0.2
    assert found.arguments["beta3"] == pytest.approx(0.8)
    assert (found.arguments["precondition_frequency"], found.arguments["momentum"]) == (10, 0.5)
    assert {change.name for change in changes} == {"lr", "betas[0]", "betas[1]", "beta3", "precondition_frequency"}
    assert all(change.reason and change.source for change in changes)
    back, _ = moved(given, situation(), situation(batch_size=1))
    assert back.arguments["betas"] == pytest.approx([0.996875, 0.999])


def test_what_a_step_takes_off_the_weights_goes_with_the_inverse_fan_in_and_the_root_of_the_batch() -> None:
    wide = situation(8 * 64)
    decoupled, _ = moved(config(grafting="adam", weight_decay=0.1), situation(), wide)
    assert decoupled.arguments["weight_decay"] == 0.1  # the learning rate has become smaller already
    independent, _ = moved(config(weight_decay=0.1, weight_decay_type="independent"), situation(), wide)
    assert independent.arguments["weight_decay"] == pytest.approx(0.1 / 8)
    deeper, _ = moved(config(grafting="adam", weight_decay=0.1), situation(), situation(layers=16))
    assert deeper.arguments["weight_decay"] == 0.1
    larger_batch, _ = moved(config(grafting="adam", weight_decay=0.1), situation(), situation(batch_size=128))
    assert larger_batch.arguments["weight_decay"] == 0.1  # the learning rate has become larger already
    larger_independent, _ = moved(
        config(weight_decay=0.1, weight_decay_type="independent"), situation(), situation(batch_size=128)
    )
    assert larger_independent.arguments["weight_decay"] == pytest.approx(0.2)
    longer, changes = moved(config(grafting="adam", weight_decay=0.1), situation(), situation(num_steps=8000))
    assert (longer.arguments["weight_decay"], [change.name for change in changes]) == (0.1, ["lr"])


def test_a_short_training_warms_up_for_fifty_steps_or_a_tenth() -> None:
    assert moved(ADAM, situation(num_steps=4000), situation(num_steps=800))[0].schedule["warmup_fraction"] == 0.0625
    assert moved(ADAM, situation(num_steps=4000), situation(num_steps=700))[0].schedule["warmup_fraction"] == 0.07143
    assert moved(ADAM, situation(num_steps=4000), situation(num_steps=100))[0].schedule["warmup_fraction"] == 0.1
    assert moved(ADAM, situation(num_steps=100), situation(num_steps=4000))[0].schedule["warmup_fraction"] == 0.05


def test_features_grow_with_the_hidden_layers_and_leave_a_vocabulary_out() -> None:
    def language_model(width: int, blocks: int) -> ModelShape:
        return ModelShape(
            (
                ParameterShape("embedding", (50_000, width), 1),
                ParameterShape("linear", (50_000, width), 1),
                ParameterShape("linear", (4 * width, width), blocks),
                ParameterShape("linear", (width, 4 * width), blocks),
            )
        )

    small, wide, deep = map(features_of, (language_model(64, 2), language_model(512, 2), language_model(64, 8)))
    assert wide.width / small.width == pytest.approx(8)
    assert deep.width == small.width
    assert (small.depth, deep.depth) == (5, 17)
    assert sum(small.shares.values()) == pytest.approx(1)


def test_distances_are_octaves() -> None:
    apart = distance(situation(), situation(8 * 64, layers=16, batch_size=128, num_steps=500))
    assert (apart.width, apart.depth, apart.batch_size, apart.num_steps, apart.workload) == (3, 2, 2, 1, 0)
    parts = 3, OF_DEPTH * 2, OF_BATCH * 2, OF_LENGTH * 1, apart.kinds
    assert apart.total == pytest.approx(math.hypot(*parts))
    assert distance(situation(8 * 64), situation()).total == pytest.approx(
        distance(situation(), situation(8 * 64)).total
    )


@pytest.mark.parametrize("point", POINTS, ids=lambda point: str(point.number))
def test_published_points_are_arguments_that_the_optimizer_takes(point: Any) -> None:
    import torch

    Shampoo([torch.nn.Parameter(torch.zeros(4, 3))], **point.arguments)
    assert point.arguments["epsilon"] == 1e-8
    assert point.arguments["precondition_frequency"] == 100
