"""The tables of optimizer arguments and the presets, held against the real constructors and the trial config."""

from __future__ import annotations

import inspect
import random
from typing import Any, get_args

import pytest
import torch
from torch import nn

from search_spaces import Float, Integer, SearchSpace, preset, presets
from search_spaces.optimizers import (
    ARGUMENTS,
    AVERAGING,
    COMPRESSION,
    IN_FLIGHT,
    OPTIMIZER_NAMES,
    SCHEDULE,
    TRAINING,
)
from search_spaces.shampoo_arguments import SHAMPOO
from shampoo import LoraRite, Shampoo, WeightAveraging, starting_values
from shampoo.averaging.arguments import AveragingMethod
from shampoo.lora import hyperparameters as lora_hyperparameters
from tests.support.shampoo.generate import table
from trainers.config import CompressionConfig, Decay, OptimizerName, Precision, ScheduleConfig, TrialConfig
from trainers.peers.muon import MuonWithAdamW
from trainers.peers.soap import peer_soap

CONSTRUCTORS: dict[str, Any] = {
    "shampoo": Shampoo,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
    "muon": MuonWithAdamW,
    "soap-peer": peer_soap,
    "lora-rite": LoraRite,
}


def test_the_table_of_shampoo_is_what_its_declarations_give() -> None:
    # Written by `python -m tests.support.shampoo.generate`.
    expected: dict[str, Any] = {}
    exec(table(), expected)
    assert list(expected["SHAMPOO"].items()) == list(SHAMPOO.items())
    assert expected["SHAMPOO_IN_FLIGHT"] == IN_FLIGHT["shampoo"]
    assert list(inspect.signature(Shampoo).parameters) == ["params", *SHAMPOO, "unknown"]


@pytest.mark.parametrize("name", OPTIMIZER_NAMES)
def test_defaults_in_the_table_are_the_constructors(name: str) -> None:
    signature = inspect.signature(CONSTRUCTORS[name])
    for argument, known in ARGUMENTS[name].items():
        assert signature.parameters[argument].default == known.default, argument


def test_the_table_of_lora_rite_is_what_its_declarations_give() -> None:
    names = {name for name in lora_hyperparameters.NAMES if name != "paired"}  # which groups are, and no config
    assert set(ARGUMENTS["lora-rite"]) == names
    assert IN_FLIGHT["lora-rite"] == {name for name in names if lora_hyperparameters.DECLARATIONS[name].in_flight}


def test_the_tables_name_the_same_optimizers_and_fields_as_a_trial_config() -> None:
    assert set(OPTIMIZER_NAMES) == set(get_args(OptimizerName))
    assert set(SCHEDULE) == {field.name for field in ScheduleConfig.__dataclass_fields__.values()}
    assert set(TRAINING) <= set(TrialConfig.__dataclass_fields__)
    assert set(COMPRESSION) == set(CompressionConfig.__dataclass_fields__)
    assert set(AVERAGING) == set(inspect.signature(WeightAveraging).parameters) - {"optimizer"}


def test_the_choices_of_sections_are_those_of_the_configs() -> None:
    assert set(SCHEDULE["decay"].choices) == set(get_args(Decay))
    assert set(TRAINING["precision"].choices) == set(get_args(Precision))
    assert set(AVERAGING["method"].choices) == set(get_args(AveragingMethod))


def test_values_go_to_their_sections() -> None:
    space = SearchSpace.from_json(
        {
            "optimizer": "adamw",
            "parameters": [
                {"type": "float", "name": "averaging.decay", "low": 0.9, "high": 0.999},
                {"type": "integer", "name": "compression.rank", "low": 1, "high": 8, "default": 4},
                {"type": "float", "name": "schedule.horizon", "low": 1.0, "high": 1.5, "default": 1.2},
            ],
            "fixed": {"averaging.method": "ema", "compression.error_feedback": False},
        }
    )
    assignment = space.assign(space.defaults())
    assert assignment.averaging == {"method": "ema", "decay": 0.9495}
    assert assignment.compression == {"rank": 4, "error_feedback": False}
    assert assignment.schedule == {"horizon": 1.2}


@pytest.mark.parametrize("table", ARGUMENTS.values(), ids=ARGUMENTS)
def test_pairs_have_two_elements(table: dict[str, Any]) -> None:
    assert all(len(argument.elements) == (2 if argument.kind == "pair" else 0) for argument in table.values())


@pytest.mark.slow
@pytest.mark.parametrize("space", presets().values(), ids=presets())
def test_every_sample_of_a_preset_is_a_config_that_its_optimizer_accepts(space: SearchSpace) -> None:
    if space.optimizer == "soap-peer":
        pytest.importorskip("pytorch_optimizer")
    parameters = [torch.zeros(2, 3), torch.zeros(4, 2)]  # a pair, too
    rng = random.Random(0)
    for values in [space.defaults(), *(space.sample(rng) for _ in range(30))]:
        assignment = space.assign(values)
        CONSTRUCTORS[space.optimizer](parameters, **assignment.optimizer_arguments)
        ScheduleConfig(**assignment.schedule)


def test_every_searched_range_of_a_preset_has_a_reason_and_a_source() -> None:
    for space in presets().values():
        for parameter in space.parameters:
            assert parameter.reason, parameter
            assert parameter.source, parameter


def test_presets_with_steps_of_one_length_search_what_they_share_in_the_same_range() -> None:
    # A handicap of one side would make every comparison a lie.
    lengths = (
        ("shampoo", "soap", "kl", "spectral", "cosmos", "adamw", "muon", "soap-peer", "lora-rite"),
        ("shampoo-sgd", "sgd"),
    )
    for names in lengths:
        ranges: dict[str, set[tuple[Any, ...]]] = {}
        for name in names:
            for parameter in presets()[name].parameters:
                # The damping of roots is no matter of lengths: those of Shampoo and KL-Shampoo have other exponents.
                if isinstance(parameter, Float | Integer) and parameter.name != "epsilon":
                    ranges.setdefault(parameter.name, set()).add((parameter.low, parameter.high, parameter.scale))
        assert {name: found for name, found in ranges.items() if len(found) > 1} == {}
    assert preset("adamw").defaults()["lr"] == preset("shampoo").defaults()["lr"]


@pytest.mark.parametrize("num_steps", [1, 30, 60, 100, 400, 5_000, 10**6])
def test_presets_begin_with_a_learning_rate_for_the_length_of_the_training_on_both_sides(num_steps: int) -> None:
    for name, space in presets().items():
        begun = preset(name, num_steps=num_steps)
        for one, before in zip(begun.branch_defaults(), space.branch_defaults(), strict=True):
            is_of_sgd = name in ("sgd", "shampoo-sgd") or before.get("grafting") == "sgd"
            member: Any = before.get("preconditioner", space.fixed.get("preconditioner", "none"))
            if name == "cosmos":
                member = "none"
            rule = starting_values(num_steps, preconditioner=member)["lr"]
            assert one == {**before, "lr": before["lr"] if is_of_sgd else max(rule, before["lr"])}, name
        assert [p.domain for p in begun.parameters] == [p.domain for p in space.parameters]


@pytest.mark.slow
@pytest.mark.parametrize("bound", ["low", "high"])
@pytest.mark.parametrize("name", sorted(SHAMPOO))
def test_shampoo_accepts_every_closed_bound_of_the_table(name: str, bound: str) -> None:
    argument = SHAMPOO[name]
    value = getattr(argument, bound)
    if argument.kind not in ("float", "integer") or getattr(argument, f"open_{bound}") or abs(value) == float("inf"):
        value = argument.default
    # What else the argument needs to have an effect.
    needed: dict[str, dict[str, Any]] = {
        "shampoo_beta": {"preconditioner": "soap"},
        "grafting_beta2": {"betas": (0.0, 0.999)},
        "statistics_frequency": {"precondition_frequency": 10**6, "start_preconditioning_step": 10**6},
        "num_ranks_per_group": {"distributed": "lossless"},
        "rank": {"preconditioner": "spectral"},
        "rest_scale": {"preconditioner": "spectral", "rank": 1},
    }
    Shampoo(nn.Linear(3, 2).parameters(), **{name: value}, **needed.get(name, {}))
