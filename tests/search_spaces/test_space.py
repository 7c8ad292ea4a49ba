"""Search spaces: what they refuse and how they say it, JSON, sampling, and sorting values into a trial config."""

from __future__ import annotations

import json
import pickle
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_spaces import (
    Categorical,
    Float,
    Integer,
    Parameter,
    Scalar,
    SearchSpace,
    SpaceError,
    algoperf_points,
    preset,
    presets,
)
from search_spaces.errors import all_of
from search_spaces.parameters import is_same

GRAFTING = Categorical("grafting", ("adam", "sgd", "none"))
LR = Float("lr", 1e-4, 1e-1, scale="log")
BRANCHED = SearchSpace(
    "shampoo",
    (
        GRAFTING,
        replace(LR, when={"grafting": ("adam", "none")}),
        Float("lr", 0.01, 3.0, scale="log", default=0.1, when={"grafting": ("sgd",)}),
        Float("betas[0]", 0.85, 0.99, scale="reverse_log", default=0.95, when={"grafting": ("adam",)}),
        Categorical("betas[0]", (0.0,), when={"grafting": ("sgd",)}),
        Integer("precondition_frequency", 1, 100, scale="log", default=10),
        Categorical("training.gradient_clip_norm", (None, 1.0)),
        Float("schedule.warmup_fraction", 0.0, 0.1),
        Float("workload.label_smoothing", 0.0, 0.2),
    ),
    {"betas[1]": 0.99, "schedule.decay": "linear", "workload.name": "x"},
)


@pytest.mark.parametrize(
    ("parameters", "field", "said"),
    [
        ((Float("lr", 2.0, 1.0),), "parameters[0].low", "2.0"),
        ((GRAFTING, Float("lr", float("nan"), 1.0)), "parameters[1].low", "nan"),
        ((Float("lr", 0.1, float("inf")),), "parameters[0].high", "inf"),
        ((Float("lr", 0.1, 1e39),), "parameters[0].high", "must be in [0, 1e+12], got 1e+39"),
        ((Float("lr", 0.0, 1.0, scale="log"),), "parameters[0].low", "0.0"),
        ((Float("betas[0]", 0.5, 1.0, scale="reverse_log"),), "parameters[0].high", "1.0"),
        ((Float("betas[0]", 0.5, 1.0),), "parameters[0].high", "[0, 1)"),
        ((Float("lr", -1.0, 1.0),), "parameters[0].low", "-1.0"),
        ((Float("lr", 0.1, 1.0, default=2.0),), "parameters[0].default", "2.0"),
        ((Float("learning_rate", 0.1, 1.0),), "parameters[0].name", "learning_rate"),
        ((Float("betas", 0.1, 0.9),), "parameters[0].type", "betas"),
        ((Float("betas[2]", 0.1, 0.9),), "parameters[0].name", "betas[2]"),
        ((Float("schedule.shape", 0.1, 0.9),), "parameters[0].name", "schedule.shape"),
        ((Float("precondition_frequency", 1, 9),), "parameters[0].type", "float"),
        ((Integer("lr", 1, 2),), "parameters[0].type", "integer"),
        ((Integer("precondition_frequency", 0, 9),), "parameters[0].low", "0"),
        ((Integer("precondition_frequency", 1, 9, default=10),), "parameters[0].default", "10"),
        ((Float("lr", 0.1, 1.0, scale="cubic"),), "parameters[0].scale", "cubic"),  # type: ignore[arg-type]
        ((Categorical("grafting", ()),), "parameters[0].choices", "0"),
        ((Categorical("grafting", ("adam", "adma")),), "parameters[0].choices[1]", "adma"),
        ((Categorical("grafting", ("adam", "adam")),), "parameters[0].choices[1]", "adam"),
        ((Categorical("grafting", ("adam",), default="sgd"),), "parameters[0].default", "sgd"),
        ((Categorical("nesterov", (1,)),), "parameters[0].choices[0]", "1"),
        ((Categorical("workload.x", tuple(range(31))),), "parameters[0].choices", "31"),
        ((LR, LR), "parameters[1].when", "parameters[0]"),
        (
            (GRAFTING, replace(LR, when={"grafting": ("adam", "sgd")}), replace(LR, when={"grafting": ("sgd",)})),
            "parameters[2].when",
            "do not exclude",
        ),
        ((replace(LR, when={"grafting": ("adam",)}), GRAFTING), "parameters[0].when", "grafting"),
        ((GRAFTING, replace(LR, when={"grafting": ("rmsprop",)})), "parameters[1].when", "rmsprop"),
        ((GRAFTING, replace(LR, when={"grafting": ()})), "parameters[1].when", "()"),
        ((LR, Float("momentum", 0.1, 0.9, when={"lr": (0.1,)})), "parameters[1].when", "lr"),
        (tuple(Float(f"workload.x{i}", 0, 1) for i in range(31)), "parameters", "31"),
    ],
)
def test_an_invalid_space_is_refused_with_its_field_and_values(
    parameters: tuple[Parameter, ...], field: str, said: str
) -> None:
    with pytest.raises(SpaceError) as refusal:
        SearchSpace("shampoo", parameters)
    assert refusal.value.field == field
    assert said in refusal.value.message


@pytest.mark.parametrize(
    ("fixed", "field"),
    [
        ({"lr": 0.1}, "fixed.lr"),
        ({"colour": "red"}, "fixed"),
        ({"grafting": "sdg"}, "fixed.grafting"),
        ({"betas": [0.9]}, "fixed.betas"),
        ({"betas": [1.0, 1.0]}, "fixed.betas[0]"),
        ({"betas": [0.9, 0.99], "betas[1]": 0.9}, "fixed.betas"),
        ({"epsilon": 0.0}, "fixed.epsilon"),
        ({"epsilon": 10**400}, "fixed.epsilon"),
        ({"workload.note": "a\0b"}, "fixed.workload.note"),
    ],
)
def test_an_invalid_fixed_value_is_refused_with_its_field(fixed: dict[str, Any], field: str) -> None:
    with pytest.raises(SpaceError) as refusal:
        SearchSpace("shampoo", (LR,), fixed)
    assert refusal.value.field == field


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ([], "space"),
        ({}, "optimizer"),
        ({"optimizer": "adam"}, "optimizer"),
        ({"optimizer": ["shampoo"]}, "optimizer"),
        ({"optimizer": "shampoo", "colour": 1}, "colour"),
        ({"optimizer": "shampoo", "my colour": 1}, "space"),
        ({"optimizer": "shampoo", "parameters": {}}, "parameters"),
        ({"optimizer": "shampoo", "parameters": [3]}, "parameters[0]"),
        ({"optimizer": "shampoo", "parameters": [{"type": "float", "name": "lr", "low": 1}]}, "parameters[0].high"),
        pytest.param(
            {
                "optimizer": "shampoo",
                "parameters": [{"type": "float", "name": "lr", "low": 1e-300, "high": 1e300, "scale": "log"}],
            },
            "parameters[0].high",
            id="a ratio beyond numbers",
        ),
        ({"optimizer": "shampoo", "parameters": [{"type": {}}]}, "parameters[0].type"),
        (
            {"optimizer": "shampoo", "parameters": [{"type": "float", "name": "lr", "low": "1", "high": 2}]},
            "parameters[0].low",
        ),
        (
            {"optimizer": "shampoo", "parameters": [{"type": "float", "name": "lr", "low": 1, "high": 2, "step": 1}]},
            "parameters[0].step",
        ),
        (
            {"optimizer": "shampoo", "parameters": [{"type": "categorical", "name": "grafting", "choices": "adam"}]},
            "parameters[0].choices",
        ),
        ({"optimizer": "shampoo", "fixed": 3}, "fixed"),
    ],
)
def test_json_of_another_shape_is_refused_with_its_field(data: object, field: str) -> None:
    with pytest.raises(SpaceError) as refusal:
        SearchSpace.from_json(data)
    assert refusal.value.field == field


_leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
_any_json = st.recursive(
    _leaves | st.sampled_from(["lr", "log", "grafting", "adam", 0, 1]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_almost_parameter = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["float", "integer", "categorical"]) | _any_json,
        "name": st.sampled_from(["lr", "betas[0]", "grafting", "precondition_frequency", "workload.x"]) | _any_json,
        "low": st.floats(0, 1) | _any_json,
        "high": st.floats(0, 2) | st.just(10**400) | _any_json,
        "scale": st.sampled_from(["linear", "log", "reverse_log"]) | _any_json,
        "choices": st.lists(_leaves, max_size=4) | _any_json,
        "default": _any_json,
        "when": st.dictionaries(st.just("grafting"), st.lists(st.just("adam"), max_size=2)) | _any_json,
    },
)
_almost_space = st.fixed_dictionaries(
    {"optimizer": st.just("shampoo"), "parameters": st.lists(_almost_parameter, max_size=3)},
    optional={"fixed": st.dictionaries(st.sampled_from(["lr", "betas", "grafting", "workload.x"]), _any_json)},
)


@given(_any_json | _almost_space)
def test_any_json_gives_a_usable_space_or_a_space_error(data: object) -> None:
    try:
        space = SearchSpace.from_json(data)
    except SpaceError:
        return
    assert SearchSpace.from_json(json.loads(json.dumps(space.to_json()))) == space
    space.assign(space.defaults())
    space.assign(space.sample(random.Random(0)))


@pytest.mark.parametrize("space", [BRANCHED, *presets().values()])
def test_json_round_trip_gives_an_equal_space(space: SearchSpace) -> None:
    assert SearchSpace.from_json(json.loads(json.dumps(space.to_json()))) == space


def test_missing_defaults_are_the_middle_of_the_range_or_the_first_choice() -> None:
    space = SearchSpace(
        "shampoo",
        (
            GRAFTING,
            Float("lr", 1e-4, 1e-2, scale="log"),
            Float("betas[0]", 0.9, 0.999, scale="reverse_log"),
            Integer("precondition_frequency", 0 + 1, 99),
            Categorical("training.gradient_clip_norm", (1.0, None)),
        ),
    )
    assert space.defaults() == {
        "grafting": "adam",
        "lr": 1e-3,
        "betas[0]": 0.99,
        "precondition_frequency": 50,
        "training.gradient_clip_norm": None,
    }


def test_defaults_of_another_branch_follow_a_given_value() -> None:
    values = BRANCHED.defaults({"grafting": "sgd"})
    assert (values["grafting"], values["lr"], values["betas[0]"]) == ("sgd", 0.1, 0.0)
    with pytest.raises(SpaceError, match="not active"):
        BRANCHED.defaults({"grafting": "none", "betas[0]": 0.9})


def test_only_the_branch_whose_condition_holds_is_active() -> None:
    assert [p.name for p in BRANCHED.active({"grafting": "sgd"})].count("lr") == 1
    for seed in range(50):
        values = BRANCHED.sample(random.Random(seed))
        assert BRANCHED.check(values) == values
        assert ("betas[0]" in values) == (values["grafting"] != "none")
        if values["grafting"] == "sgd":
            assert values["betas[0]"] == 0.0
            assert isinstance(values["lr"], float)
            assert 0.01 <= values["lr"] <= 3.0


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"lr": 1.0}, "lr"),
        ({"lr": "0.01"}, "lr"),
        ({"lr": True}, "lr"),
        ({"lr": float("nan")}, "lr"),
        ({"precondition_frequency": 2.5}, "precondition_frequency"),
        ({"grafting": "rmsprop"}, "grafting"),
        ({"momentum": 0.9}, "values"),
        ({"grafting": "none"}, "betas[0]"),
    ],
)
def test_an_impossible_assignment_is_refused_with_its_parameter(change: dict[str, Any], field: str) -> None:
    with pytest.raises(SpaceError) as refusal:
        BRANCHED.check({**BRANCHED.defaults(), **change})
    assert refusal.value.field == field


def test_a_missing_value_is_refused() -> None:
    values = BRANCHED.defaults()
    del values["precondition_frequency"]
    with pytest.raises(SpaceError, match="precondition_frequency: needs a value"):
        BRANCHED.check(values)
    with pytest.raises(SpaceError, match="must be an object"):
        BRANCHED.check([])


def test_values_are_sorted_into_the_sections_of_a_trial_config() -> None:
    assignment = BRANCHED.assign({**BRANCHED.defaults(), "training.gradient_clip_norm": 1.0})
    assert assignment.optimizer_arguments == {
        "grafting": "adam",
        "lr": pytest.approx(10**-2.5, rel=1e-3),
        "betas": [0.95, 0.99],
        "precondition_frequency": 10,
    }
    assert assignment.schedule == {"warmup_fraction": 0.05, "decay": "linear"}
    assert assignment.workload_options == {"label_smoothing": 0.1, "name": "x"}
    assert assignment.training == {"gradient_clip_norm": 1.0}


def test_a_missing_element_of_a_pair_is_the_constructors_default() -> None:
    space = SearchSpace("adamw", (Float("betas[0]", 0.8, 0.9),))
    assert space.assign({"betas[0]": 0.8}).optimizer_arguments == {"betas": [0.8, 0.999]}
    assert SearchSpace("adamw", (), {"betas": [0.5, 0.6]}).assign({}).optimizer_arguments == {"betas": [0.5, 0.6]}


_ranges = st.tuples(st.floats(1e-6, 0.999), st.floats(1e-6, 0.999)).map(sorted)


@given(_ranges, st.sampled_from(["linear", "log", "reverse_log"]), st.floats(0, 1))
def test_unit_scaling_of_floats_stays_inside_and_rounding_is_stable(
    bounds: list[float], scale: Any, position: float
) -> None:
    low, high = bounds
    parameter = Float("lr", low, high, scale=scale)
    value = parameter.from_unit(position)
    assert parameter.low <= value <= parameter.high
    assert parameter.rounded(value) == value
    assert -1e-9 <= parameter.to_unit(value) <= 1 + 1e-9
    # Four digits, of 1 - value on the reverse scale, tell places in the range apart only if it is wide enough.
    low, high = parameter.low * (1 + 1e-3), parameter.high * (1 - 1e-3)
    if scale == "reverse_log":
        low, high = 1 - (1 - parameter.low) * (1 - 1e-3), 1 - (1 - parameter.high) * (1 + 1e-3)
    if parameter.to_unit(high) > parameter.to_unit(low) + 0.9:
        assert parameter.to_unit(value) == pytest.approx(position, abs=0.02)


@given(st.integers(1, 50), st.integers(0, 100), st.sampled_from(["linear", "log"]))
def test_unit_scaling_gives_back_every_integer(low: int, width: int, scale: Any) -> None:
    parameter = Integer("precondition_frequency", low, low + width, scale=scale)
    for value in range(low, low + width + 1):
        assert parameter.from_unit(parameter.to_unit(value)) == value
    assert parameter.from_unit(0.0) == low
    assert parameter.from_unit(1.0) == low + width


def test_unit_scaling_gives_back_every_choice() -> None:
    for choice in GRAFTING.choices:
        assert GRAFTING.from_unit(GRAFTING.to_unit(choice)) == choice
    assert not is_same(True, 1)
    assert is_same(1, 1.0)


def test_an_unknown_preset_is_refused_with_those_there_are() -> None:
    with pytest.raises(SpaceError, match="adamw"):
        preset("lion")


def test_branch_defaults_are_the_defaults_and_those_of_each_other_branch() -> None:
    branches = BRANCHED.branch_defaults()
    assert [branch["grafting"] for branch in branches] == ["adam", "sgd", "none"]
    assert branches[0] == BRANCHED.defaults()
    assert branches[1]["lr"] == 0.1
    assert preset("adamw").branch_defaults() == [preset("adamw").defaults()]


def test_the_points_of_the_algoperf_submission_lie_in_the_presets() -> None:
    adam, sgd = algoperf_points(preset("shampoo")), algoperf_points(preset("shampoo-sgd"))
    assert [point["lr"] for point in adam] == [1.308e-3, 1.749e-3, 1.2e-3, 1.438e-3]
    assert [point["lr"] for point in sgd] == [0.132]
    assert algoperf_points(preset("adamw")) == []


def test_a_number_may_lie_beyond_its_range_when_told_to_and_as_far_as_the_optimizer_goes() -> None:
    space = SearchSpace("sgd", (Float("lr", 0.1, 1.0, scale="log"), Float("workload.width", 1.0, 2.0)))
    beyond: dict[str, Scalar] = {"lr": 9.0, "workload.width": -3.0}
    with pytest.raises(SpaceError, match=r"lr: must be in \[0.1, 1.0\], got 9.0"):
        space.check(beyond)
    assert space.check(beyond, beyond_bounds=True) == beyond
    assert space.assign(beyond).optimizer_arguments == {"lr": 9.0}
    assert Float("lr", 0.1, 1.0, scale="log").to_unit(9.0) == 1.0
    assert Float("lr", 0.1, 1.0, scale="log").to_unit(0.0) == 0.0
    assert Integer("ns_steps", 1, 5).to_unit(9) == Integer("ns_steps", 1, 5).to_unit(5)
    for value, said in ((-1.0, "got -1"), (float("nan"), "finite"), ("x", "finite")):
        with pytest.raises(SpaceError, match=said):
            space.check({**beyond, "lr": value}, beyond_bounds=True)
    with pytest.raises(SpaceError, match="must be one of"):
        BRANCHED.check({"grafting": "rmsprop"}, beyond_bounds=True)
    with pytest.raises(SpaceError, match="integer"):
        SearchSpace("shampoo", (Integer("precondition_frequency", 1, 5),)).check(
            {"precondition_frequency": 7.5}, beyond_bounds=True
        )


def test_everything_that_is_wrong_with_a_space_is_told_at_once() -> None:
    with pytest.raises(SpaceError) as refusal:
        SearchSpace.from_json(
            {
                "optimizer": "shampoo",
                "parameters": [
                    {"type": "float", "name": "lr", "low": "small", "high": 1e400, "scale": "log"},
                    {"type": "float", "name": "weight_decay", "low": -1.0, "high": -0.5, "default": 0.0, "reasn": "x"},
                    {"type": "categorical", "name": "grafting", "choices": ["sdg", "adam"]},
                    {"type": "float", "name": "epsilon", "low": 1e-8, "high": 1e-12, "when": {"grafting": ["adam"]}},
                    {"type": "integer", "name": "nothing", "low": 1, "high": 2},
                ],
                "fixed": {"momentum": -1, "betas": [0.9], "nesterov": 3},
            }
        )
    fields = [one.field for one in all_of(refusal.value)]
    assert fields[:1] == ["parameters[1].reasn"]  # a field that there is not: its values are not looked at
    assert fields[1:3] == ["parameters[0].low", "parameters[0].high"]
    assert fields[3:6] == ["parameters[2].choices[0]", "parameters[3].low", "parameters[4].name"]
    assert "fixed.betas" in fields
    assert str(refusal.value).count("; ") >= len(fields) - 1
    again = pickle.loads(pickle.dumps(refusal.value))
    assert [one.message for one in all_of(again)] == [one.message for one in all_of(refusal.value)]


def test_what_stands_on_a_faulty_parameter_is_no_fault_of_its_own() -> None:
    grafting = {"type": "categorical", "name": "grafting", "choices": ["sdg"]}
    depends = {"type": "float", "name": "lr", "low": 1e-4, "high": 1e-2, "when": {"grafting": ["sdg"]}}
    with pytest.raises(SpaceError) as refusal:
        SearchSpace.from_json({"optimizer": "shampoo", "parameters": [grafting, depends]})
    assert [one.field for one in all_of(refusal.value)] == ["parameters[0].choices[0]"]
    with pytest.raises(SpaceError) as refusal:
        SearchSpace.from_json({"optimizer": "shampoo", "parameters": [{"name": "grafting"}, depends]})
    assert [one.field for one in all_of(refusal.value)] == ["parameters[0].type"]
