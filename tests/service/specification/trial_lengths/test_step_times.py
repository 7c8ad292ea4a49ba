"""The time of a step of any config, read from those of a few."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import ValidationError

from search_spaces import Categorical, Float, Integer, Scalar, SearchSpace, preset
from service.errors import InvalidInput
from service.specification.trial_lengths.step_times import (
    MAX_TIMED,
    StepTime,
    StepTimes,
    check_num_timed,
    timed_configs,
    timed_values,
)

SPACE = SearchSpace(
    "shampoo",
    (
        Float("lr", 1e-4, 1e-1, scale="log", default=1e-3),
        Categorical("preconditioner", ("soap", "spectral")),
        Integer("precondition_frequency", 1, 50, scale="log", default=10, when={"preconditioner": ("soap",)}),
        Integer("workload.width", 8, 24, default=8),
        Categorical("epsilon", (1e-6, 1e-4)),
        Float("schedule.warmup_fraction", 0.01, 0.1, default=0.05),
    ),
)


def seconds_of(values: Mapping[str, Scalar]) -> float:
    """The time of a step that costs a second, a refresh that costs ten, and a tenth of a second for each of width."""
    period, width = values.get("precondition_frequency"), values["workload.width"]
    assert isinstance(width, int)
    return 1.0 + (0.0 if period is None else 10.0 / float(period)) + 0.1 * width


def times() -> StepTimes:
    measured = [timed_values(SPACE, config) for config in timed_configs(SPACE)]
    found = [StepTime(side="search", parameters=dict(one), seconds=seconds_of(one)) for one in measured]
    return StepTimes({"search": SPACE}, found)


def test_every_choice_and_both_ends_of_what_counts_are_timed_and_nothing_else_varies() -> None:
    configs = timed_configs(SPACE)
    assert [timed_values(SPACE, config) for config in configs] == [
        {"preconditioner": "soap", "precondition_frequency": period, "workload.width": width}
        for period in (1, 50)
        for width in (8, 24)
    ] + [{"preconditioner": "spectral", "workload.width": width} for width in (8, 24)]
    assert all(SPACE.check(config) == config for config in configs)
    others = {(config["lr"], config["epsilon"], config["schedule.warmup_fraction"]) for config in configs}
    assert others == {(1e-3, 1e-6, 0.05)}


@pytest.mark.parametrize(("name", "num"), [("shampoo", 2), ("family", 9), ("adamw", 1), ("spectral", 1), ("cosmos", 2)])
def test_presets_need_few_times(name: str, num: int) -> None:
    assert len(timed_configs(preset(name))) == num


@pytest.mark.parametrize(
    "values",
    [
        {"preconditioner": "soap", "precondition_frequency": 1, "workload.width": 8},
        {"preconditioner": "soap", "precondition_frequency": 10, "workload.width": 8},
        {"preconditioner": "soap", "precondition_frequency": 7, "workload.width": 20},
        {"preconditioner": "spectral", "workload.width": 12},
    ],
)
def test_a_time_between_follows_the_inverse_of_the_period_and_others_in_proportion(values: dict[str, Scalar]) -> None:
    config = {"lr": 0.02, "epsilon": 1e-4, "schedule.warmup_fraction": 0.1, **values}
    assert times().of("search", config) == pytest.approx(seconds_of(values))


def test_beyond_a_range_the_time_is_that_of_its_edge() -> None:
    config: dict[str, Any] = {"lr": 0.02, "preconditioner": "soap", "workload.width": 8}
    beyond = times().of("search", config | {"precondition_frequency": 200})
    assert beyond == pytest.approx(times().of("search", config | {"precondition_frequency": 50}))


def test_a_choice_that_opens_what_counts_is_timed_though_it_does_not_count_itself() -> None:
    opening = Categorical("epsilon", (1e-6, 1e-4))
    period = Integer("precondition_frequency", 5, 10, when={"epsilon": (1e-4,)})
    space = SearchSpace("shampoo", (opening, period))
    configs = timed_configs(space)
    assert configs == [
        {"epsilon": 1e-6},
        {"epsilon": 1e-4, "precondition_frequency": 5},
        {"epsilon": 1e-4, "precondition_frequency": 10},
    ]
    measured = [StepTime(side="search", parameters=dict(one), seconds=1.0 + at) for at, one in enumerate(configs)]
    found = StepTimes({"search": space}, measured)
    assert [found.of("search", one) for one in configs] == [1.0, 2.0, 3.0]


def test_the_quickest_step_is_that_of_any_side() -> None:
    spaces = {"search": SearchSpace("shampoo"), "adamw": SearchSpace("adamw")}
    measured = [StepTime(side="search", seconds=2.0), StepTime(side="adamw", seconds=0.5)]
    found = StepTimes(spaces, measured)
    assert (found.least, found.of("search", {}), found.of("adamw", {})) == (0.5, 2.0, 0.5)


def test_a_time_that_is_missing_is_named() -> None:
    with pytest.raises(InvalidInput, match=r"lacks the time of adamw with \{\}") as refused:
        StepTimes(
            {"search": SearchSpace("shampoo"), "adamw": SearchSpace("adamw")}, [StepTime(side="search", seconds=1)]
        )
    assert refused.value.field == "step_times"


@pytest.mark.parametrize(("side", "parameters"), [("sgd", {}), ("search", {"lr": 0.1}), ("adamw", {"eps": True})])
def test_a_time_of_another_config_is_named(side: str, parameters: dict[str, Any]) -> None:
    spaces = {"search": SearchSpace("shampoo"), "adamw": SearchSpace("adamw")}
    given = [StepTime(side=own, seconds=1.0) for own in spaces]
    with pytest.raises(InvalidInput, match=f"is of no config whose time is asked for, got {side} with ") as refused:
        StepTimes(spaces, [*given, StepTime(side=side, parameters=parameters, seconds=1.0)])
    assert refused.value.field == "step_times[2]"


def test_too_many_configs_to_be_timed_are_refused_with_the_parameters_that_make_them() -> None:
    dims = Categorical("max_preconditioner_dim", tuple(range(64, 64 + MAX_TIMED // 2 + 1)))
    wide = SearchSpace("shampoo", (Float("lr", 1e-3, 1e-1), dims, Integer("precondition_frequency", 1, 50)))
    with pytest.raises(InvalidInput, match=r"34 configs, at most 32: .*\(max_preconditioner_dim, precond") as refused:
        check_num_timed({"search": wide}, field="currency")
    assert refused.value.field == "currency"
    check_num_timed({"search": preset("family"), "adamw": preset("adamw")}, field="currency")


@pytest.mark.parametrize(
    ("field", "value"), [("parameters", dict.fromkeys(map(str, range(31)), 1)), ("seconds", 0.0), ("seconds", 1e-300)]
)
def test_a_time_that_cannot_be_is_refused_by_its_field(field: str, value: Any) -> None:
    with pytest.raises(ValidationError) as refused:
        StepTime(**{"side": "search", "seconds": 1.0, field: value})
    [error] = refused.value.errors()
    assert error["loc"] == (field,)
    assert None not in error["ctx"].values()  # which the answer names
