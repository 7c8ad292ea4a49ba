"""Prices of cheaper settings hold against a law that is known, and say so where there is no telling."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from search_spaces import Scalar, SearchSpace
from service.domain import Direction, FailureReason, TrialState
from service.evidence.prices import Basis, CheaperSetting
from service.scheduler.insights.compared import EndedTrial
from service.scheduler.insights.effects import measured_change
from service.scheduler.insights.of_side import insights_of_side
from service.scheduler.insights.predicted_cost import GroupShapes, PredictedCosts, grouped
from tests.support.service.searching.priced_search import (
    HERE,
    MODEL,
    SPACE,
    holds,
    loss,
    prices,
    searched,
    trial,
    true_changes,
)
from trainers.identity.values import ModelShape, ParameterShape
from trainers.workload.description import ParameterGroup, ParameterRule

EFFECT = 0.2


def of(found: Sequence[CheaperSetting], parameter: str, value: Scalar = None) -> CheaperSetting:
    return next(one for one in found if one.parameter == parameter and value in (None, one.value))


@pytest.mark.slow
def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    held, timed = [], []
    for seed in range(7):
        for setting in prices(searched(30, EFFECT, noise=0.03, seed=seed)):
            of_loss, of_time = true_changes(setting, EFFECT)
            held += [] if setting.objective is None else [holds(setting.objective, of_loss)]
            timed += [] if setting.step_seconds is None else [holds(setting.step_seconds, of_time)]
    assert len(held) >= 12
    assert sum(held) >= 0.8 * len(held)
    assert sum(timed) >= 0.8 * len(timed)


@pytest.mark.slow
def test_a_longer_refresh_period_costs_loss_and_spares_time() -> None:
    trials = [*searched(40, EFFECT, noise=0.01, seed=1)]
    best = {**SPACE.defaults(), "lr": 4e-3, "weight_decay": 1e-2, "precondition_frequency": 2}
    trials.append(trial(40, best, 0.95 * loss(best, EFFECT)))
    found = prices(trials)
    longest = of(found, "precondition_frequency", 64)
    assert longest.best_value == 2
    assert longest.objective is not None
    assert longest.step_seconds is not None
    assert (longest.objective.is_seen, longest.objective.share > 0.05) == (True, True)
    assert longest.basis is Basis.ESTIMATED
    assert longest.step_seconds.high < 0
    assert longest.step_operations < -0.5
    assert longest.state == 0
    smaller = of(found, "state_dtype", "bfloat16")
    assert smaller.state == pytest.approx(-0.376, abs=0.01)
    assert smaller.objective is not None
    assert not smaller.objective.is_seen


def test_only_cheaper_values_of_what_costs_anything_are_priced() -> None:
    trials = searched(20, 0.0, noise=0.05, seed=2)
    whole = PredictedCosts(SPACE, MODEL, device="cpu")
    side = insights_of_side("search", SPACE, trials, Direction.MINIMIZE, {}, MODEL)
    best, found = trials[side.priced_trial or 0].parameters, side.prices
    assert {one.parameter for one in found} <= {"precondition_frequency", "state_dtype"}
    for one in found:
        assert best[one.parameter] == one.best_value
        before, after = whole.of(best), whole.of({**best, one.parameter: one.value})
        assert before is not None
        assert after is not None
        assert after.step_operations < before.step_operations or after.state_bytes < before.state_bytes
    assert len([one for one in found if one.parameter == "precondition_frequency"]) <= 3


def test_of_few_trials_costs_are_told_and_the_loss_is_not() -> None:
    found = prices(searched(11, EFFECT, noise=0.01, seed=3))
    assert found
    assert {(one.objective, one.basis, one.step_seconds) for one in found} == {(None, None, None)}
    assert any(one.step_operations < -0.02 for one in found)


def test_a_value_that_nobody_came_near_has_no_price() -> None:
    values = [{**one.parameters, "state_dtype": "float32"} for one in searched(30, 0.0, noise=0.05, seed=4)]
    found = prices([trial(number, one, loss(one, 0.0)) for number, one in enumerate(values)])
    assert of(found, "state_dtype").objective is None
    assert of(found, "state_dtype").num_trials == 0
    assert of(found, "precondition_frequency").objective is not None


@pytest.mark.slow
def test_trials_on_other_devices_measure_no_time() -> None:
    trials = searched(30, EFFECT, noise=0.05, seed=5)
    best = min(trials, key=lambda one: one.value or math.inf)
    elsewhere = dataclasses.replace(HERE, world_size=2)
    moved = [one if one is best else dataclasses.replace(one, place=elsewhere) for one in trials]
    assert all(one.step_seconds is None for one in prices(moved))
    assert any(one.step_seconds is not None for one in prices(trials))


@pytest.mark.slow
def test_two_configs_that_differ_in_one_setting_alone_are_measured_with_their_new_seeds() -> None:
    trials = searched(20, 0.0, noise=0.05, seed=6)
    values = {**SPACE.defaults(), "precondition_frequency": 10}
    best = trial(20, values, 0.13, confirmed={1: 0.110, 2: 0.120, 3: 0.115, 4: 0.1})
    other = trial(21, {**values, "precondition_frequency": 40}, 0.14, confirmed={1: 0.1111, 2: 0.1211, 3: 0.1164})
    found = of(prices([*trials, best, other]), "precondition_frequency", 40)
    assert found.basis is Basis.MEASURED
    assert found.objective is not None
    assert found.objective.share == pytest.approx((0.1111 + 0.1211 + 0.1164) / 0.345 - 1)
    assert (found.objective.num_trials, found.objective.is_seen) == (6, True)
    # A seed that all trials share shifts all of them: without new seeds of its own nothing is measured of it.
    found = of(prices([*trials, best, dataclasses.replace(other, confirmed={})]), "precondition_frequency")
    assert found.basis is Basis.ESTIMATED


def test_measured_intervals_hold_the_truth_as_often_as_they_say() -> None:
    rng, held = random.Random(0), 0
    for _ in range(500):
        best = {seed: rng.gauss(1, 0.3) for seed in range(4)}
        found = measured_change(best, {seed: value + rng.gauss(0.1, 0.05) for seed, value in best.items()})
        assert found is not None
        mean = sum(best.values()) / 4
        held += holds(found, 0.1 / mean)
    assert 0.86 <= held / 500 <= 0.94
    assert measured_change({1: 1.0, 2: 1.0}, {2: 1.1, 3: 1.0}) is None


def test_the_best_config_is_the_one_that_new_seeds_chose() -> None:
    trials = searched(20, 0.0, noise=0.05, seed=7)
    first, second, third = sorted(trials, key=lambda one: one.value or math.inf)[:3]
    confirmed: dict[int, dict[int, float | None]] = {
        first.number: {1: 0.5, 2: None},
        second.number: {1: 0.5},
        third.number: {1: 0.45, 2: 0.55},
    }
    told = [dataclasses.replace(one, confirmed=confirmed.get(one.number, {})) for one in trials]
    found = insights_of_side("search", SPACE, told, Direction.MINIMIZE, {}, MODEL)
    assert found.priced_trial == third.number


FAMILY = SearchSpace.from_json(
    {
        "optimizer": "shampoo",
        "parameters": [
            {"type": "categorical", "name": "preconditioner", "choices": ["shampoo", "soap", "spectral"]},
            {
                "type": "integer",
                "name": "precondition_frequency",
                "low": 1,
                "high": 50,
                "scale": "log",
                "when": {"preconditioner": ["shampoo", "soap"]},
            },
            {"type": "float", "name": "lr", "low": 1e-4, "high": 1e-1, "scale": "log"},
        ],
    }
)


def member_loss(values: Mapping[str, Any]) -> float:
    return (
        0.3
        * (1 + (math.log10(values["lr"]) + 2.5) ** 2)
        * {"shampoo": 1.1, "soap": 1.0, "spectral": 1.3}[values["preconditioner"]]
    )


@pytest.mark.slow
def test_a_cheaper_member_is_priced_by_its_own_best_config_and_conditions_hold() -> None:
    rng, trials = random.Random(0), []
    for number in range(45):
        values = FAMILY.sample(rng)
        trials.append(trial(number, values, member_loss(values), seconds_per_step=1e-3))
    found = prices(trials, FAMILY)
    assert of(found, "preconditioner").best_value == "soap"
    spectral = of(found, "preconditioner", "spectral")
    best = min(
        (one for one in trials if one.parameters["preconditioner"] == "spectral"), key=lambda one: one.value or 0
    )
    assert spectral.like == best.number
    assert spectral.state < -0.5
    assert spectral.objective is not None
    assert 0.1 < spectral.objective.share < 0.7
    # Nobody knows good values for a member of which no trial completed.
    pruned = [
        dataclasses.replace(one, state=TrialState.PRUNED, progress=0.4)
        if one.parameters["preconditioner"] == "spectral"
        else one
        for one in trials
    ]
    spectral = of(prices(pruned, FAMILY), "preconditioner", "spectral")
    assert (spectral.objective, spectral.like, spectral.state < -0.5) == (None, None, True)
    # A member without the parameter has no cheaper value of it.
    lonely = [dataclasses.replace(one, value=one.value if one is best else 9.0) for one in trials]
    assert "precondition_frequency" not in {one.parameter for one in prices(lonely, FAMILY)}


def test_no_number_is_made_of_values_that_are_none() -> None:
    diverged = {"state": TrialState.FAILED, "reason": FailureReason.DIVERGED, "value": None}
    trials = [
        dataclasses.replace(one, **diverged) if one.number % 3 else one  # type: ignore[arg-type]  # these fields
        for one in searched(30, 0.0, noise=0.05, seed=8)
    ]
    for one in prices(trials):
        changes = [change for change in (one.objective, one.step_seconds) if change is not None]
        assert all(math.isfinite(value) for change in changes for value in (change.share, change.low, change.high))
    assert prices([dataclasses.replace(one, **diverged) for one in trials]) == []  # type: ignore[arg-type]  # these


@pytest.mark.slow
def test_a_model_that_measured_less_state_than_its_shapes_have_is_not_priced() -> None:
    def told(state_bytes: float) -> list[EndedTrial]:
        return [dataclasses.replace(one, state_bytes=state_bytes) for one in searched(12, 0.0, noise=0.05, seed=9)]

    assert prices(told(3e6))
    assert prices(told(1e5)) == []
    assert insights_of_side("search", SPACE, told(3e6), Direction.MINIMIZE, {}).prices == []


def test_groups_of_a_workload_are_told_by_kind_and_shape() -> None:
    table, output = ParameterShape("embedding", (50, 8), 1), ParameterShape("linear", (50, 8), 1)
    hidden, bias = ParameterShape("linear", (8, 8), 2), ParameterShape("vector", (8,), 2)
    shape = ModelShape((table, output, hidden, bias))
    plain = {"preconditioner": "none"}
    rules = (ParameterRule(module_types=("Embedding",), min_dims=2), ParameterRule(name_parts=("output",), min_dims=2))
    groups = (
        ParameterGroup("tables and output", plain, unless="whole", any_of=rules),
        ParameterGroup("vectors", {"weight_decay": 0.0}, any_of=(ParameterRule(max_dims=1),)),
    )
    assert grouped(shape, groups, {}) == [
        GroupShapes(plain, [(50, 8), (50, 8)]),
        GroupShapes({"weight_decay": 0.0}, [(8,), (8,)]),
        GroupShapes({}, [(8, 8), (8, 8)]),
    ]
    assert grouped(shape, groups, {"whole": True})[0].settings == {}  # type: ignore[index]  # shapes tell
    assert grouped(shape, (ParameterGroup("some"),), {}) is None
