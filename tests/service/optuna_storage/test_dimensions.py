"""Search spaces as Optuna's distributions."""

from __future__ import annotations

import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from search_spaces import Categorical, Float, Integer, Scalar, SearchSpace, preset
from service.optuna_storage.dimensions import dimensions_of, parameters_of

SPACE = SearchSpace(
    optimizer="shampoo",
    parameters=(
        Float("lr", 1e-4, 1e-1, "log"),
        Float("betas[1]", 0.9, 0.999, "reverse_log"),
        Integer("precondition_frequency", 1, 50, "log"),
        Categorical("grafting", ("adam", "sgd", "none")),
        Float("grafting_epsilon", 1e-10, 1e-4, "log", when={"grafting": ("adam",)}),
    ),
)


def test_a_space_keeps_its_ranges_scales_and_choices() -> None:
    values: dict[str, Scalar] = {"lr": 0.01, "betas[1]": 0.99, "precondition_frequency": 7, "grafting": "sgd"}
    dimensions = dimensions_of(SPACE, [values])
    assert dimensions.distributions == {
        "lr": FloatDistribution(1e-4, 1e-1, log=True),
        "betas[1]": FloatDistribution(0.9, 0.999),
        "precondition_frequency": IntDistribution(1, 50, log=True),
        "grafting": CategoricalDistribution(("adam", "sgd", "none")),
        "grafting_epsilon if grafting in ['adam']": FloatDistribution(1e-10, 1e-4, log=True),
    }
    found = parameters_of(dimensions, values)
    assert found.values == values
    assert set(found.distributions) == set(values)
    assert found.unknown == {}


def test_a_conditional_parameter_is_there_where_it_has_a_value() -> None:
    values = SPACE.defaults({"grafting": "adam"})
    found = parameters_of(dimensions_of(SPACE, [values]), values, prefix="shampoo/")
    assert found.values["shampoo/grafting_epsilon if grafting in ['adam']"] == values["grafting_epsilon"]


@pytest.mark.parametrize(
    ("name", "value", "distribution"),
    [
        ("lr", 0.5, FloatDistribution(1e-4, 0.5, log=True)),
        ("lr", 1, FloatDistribution(1e-4, 1.0, log=True)),
        ("lr", 0, FloatDistribution(0.0, 0.1)),
        ("betas[1]", 0.5, FloatDistribution(0.5, 0.999)),
        ("precondition_frequency", 200, IntDistribution(1, 200, log=True)),
    ],
)
def test_a_value_beyond_the_bounds_widens_them(name: str, value: Scalar, distribution: BaseDistribution) -> None:
    values = SPACE.defaults() | {name: value}
    dimensions = dimensions_of(SPACE, [SPACE.defaults(), values])
    assert dimensions.distributions[name] == distribution
    found = parameters_of(dimensions, values)
    assert found.values[name] == value
    assert distribution._contains(distribution.to_internal_repr(found.values[name]))


def test_choices_are_what_they_are() -> None:
    choices = (True, 2, None, "a", 0.5)
    dimensions = dimensions_of(SearchSpace("shampoo", (Categorical("workload.x", choices),)), [])
    for choice in choices:
        found = parameters_of(dimensions, {"workload.x": choice})
        distribution = found.distributions["workload.x"]
        assert distribution.to_external_repr(distribution.to_internal_repr(found.values["workload.x"])) is choice


def test_what_the_space_does_not_have_any_more_has_no_distribution() -> None:
    values: dict[str, Scalar] = {"lr": 0.01, "gone": 3, "grafting": "rmsprop", "precondition_frequency": "often"}
    found = parameters_of(dimensions_of(SPACE, [values]), values)
    assert found.values == {"lr": 0.01}
    assert found.unknown == {"gone": 3, "grafting": "rmsprop", "precondition_frequency": "often"}


@pytest.mark.parametrize("name", ["shampoo", "soap", "adamw"])
def test_presets_have_a_dimension_for_each_parameter(name: str) -> None:
    space = preset(name)
    assert len(dimensions_of(space, space.branch_defaults()).distributions) == len(space.parameters)
