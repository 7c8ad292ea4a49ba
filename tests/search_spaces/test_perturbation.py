"""Changes in the middle of a training run: of which parameters, and by how much."""

from __future__ import annotations

import random

import pytest

from search_spaces import (
    Categorical,
    Float,
    Integer,
    Parameter,
    SearchSpace,
    may_change_in_flight,
    perturb,
    preset,
    presets,
)
from search_spaces.optimizers import ARGUMENTS, IN_FLIGHT, SECTIONS
from shampoo.hyperparameters import DEFAULTS
from tests.shampoo.test_live_hyperparameters import EXPECTED, LIVE

NOT_IN_FLIGHT = {
    "start_preconditioning_step",  # counts at the beginning only
    "max_failed_refreshes",  # changes no step
}


def test_what_may_change_in_flight_is_what_the_optimizer_lets_change() -> None:
    table = ARGUMENTS["shampoo"]
    numbers = {name for name, argument in table.items() if argument.kind in ("float", "integer", "pair")}
    live = {name for name, observed in EXPECTED.items() if LIVE in observed}
    assert IN_FLIGHT["shampoo"] == (numbers & live) - NOT_IN_FLIGHT
    assert IN_FLIGHT["shampoo"] <= DEFAULTS.keys()


def test_only_known_numbers_may_change_in_flight() -> None:
    for section, names in IN_FLIGHT.items():
        known = ARGUMENTS.get(section) or SECTIONS[section]
        assert all(known[name].kind in ("float", "integer", "pair") for name in names)


@pytest.mark.parametrize("name", presets())
def test_of_every_preset_something_may_change(name: str) -> None:
    space = preset(name)
    assert next(p.name for p in space.parameters if may_change_in_flight(space, p)) == "lr"


def moves(parameter: Parameter, value: float, *, optimizer: str = "shampoo") -> set[float]:
    """All that a value becomes in many perturbations."""
    space = SearchSpace(optimizer, (parameter,))  # type: ignore[arg-type]  # a name
    found = set()
    for seed in range(400):
        values = perturb(space, {parameter.name: value}, random.Random(seed))
        assert space.check(values) == values
        found.add(values[parameter.name])
    return found  # type: ignore[return-value]  # numbers


@pytest.mark.parametrize(
    ("parameter", "value", "factors"),
    [
        (Float("lr", 1e-4, 1e-1, scale="log"), 0.01, {0.008, 0.012}),
        (Float("weight_decay", 0.0, 1.0), 0.5, {0.4, 0.6}),
        (Float("betas[0]", 0.5, 0.99, scale="reverse_log"), 0.9, {0.92, 0.88}),
        (Integer("precondition_frequency", 5, 50, scale="log"), 10, {8, 12}),
        (Integer("precondition_frequency", 1, 50, scale="log"), 1, {2}),
        (Integer("precondition_frequency", 2, 50), 2, {3}),
        (Float("schedule.horizon", 0.5, 2.0), 1.0, {0.8, 1.2}),
        (Float("training.gradient_clip_norm", 0.1, 10.0, scale="log"), 1.0, {0.8, 1.2}),
    ],
)
def test_a_value_is_moved_on_its_scale_or_drawn_anew(parameter: Parameter, value: float, factors: set[float]) -> None:
    found = moves(parameter, value)
    assert factors <= found
    assert value not in found or isinstance(parameter, Integer)
    assert len(found) > 3


@pytest.mark.parametrize(("value", "turned"), [(0.1, 0.08), (1e-4, 1.2e-4)])
def test_a_value_at_the_edge_of_its_range_turns_back(value: float, turned: float) -> None:
    found = moves(Float("lr", 1e-4, 0.1, scale="log"), value)
    assert turned in found
    assert value not in found


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        (Float("momentum", 0.0, 0.9), 0.0),
        (Float("betas[1]", 0.9, 1.0), 1.0),
        (Float("schedule.warmup_fraction", 0.01, 0.1), 0.05),
        (Integer("max_preconditioner_dim", 64, 1024, scale="log"), 256),
        (Categorical("grafting", ("adam", "sgd")), "adam"),
        (Float("workload.dropout", 0.0, 0.5), 0.1),
    ],
)
def test_what_would_add_state_or_shape_it_stays(parameter: Parameter, value: float) -> None:
    assert moves(parameter, value) == {value}


def test_an_average_does_not_become_a_sum() -> None:
    assert 1.0 not in moves(Float("betas[1]", 0.9, 1.0), 0.95)


def test_only_active_parameters_are_moved() -> None:
    space = SearchSpace(
        "shampoo",
        (
            Categorical("grafting", ("adam", "sgd")),
            Float("lr", 1e-4, 1e-1, scale="log", when={"grafting": ("adam",)}),
            Float("lr", 1e-2, 1.0, scale="log", when={"grafting": ("sgd",)}),
        ),
    )
    for seed in range(50):
        values = perturb(space, {"grafting": "sgd", "lr": 0.5}, random.Random(seed))
        assert space.check(values) == values
        assert values["grafting"] == "sgd"
