"""Samplers: suggestions that depend on stored trials alone, and what each ending counts as."""

from __future__ import annotations

import math
from typing import get_args

import pytest

from search_spaces import Categorical, Float, Integer, Scalar, SearchSpace
from service.domain import Direction, FailureReason, SamplerName, TrialState
from service.scheduler.policy.searching.phase_search import Sampler, TrialOutcome
from service.scheduler.policy.searching.samplers import make_sampler
from tests.support.service.searching.simulation import SEARCH_SPACE

COMPLETED, PRUNED, FAILED = TrialState.COMPLETED, TrialState.PRUNED, TrialState.FAILED


NAMES = get_args(SamplerName)


def _sampler(name: SamplerName, space: SearchSpace = SEARCH_SPACE, seed: str = "0") -> Sampler:
    return make_sampler(name, space, directions=[Direction.MINIMIZE], num_trials=20, seed=seed)


def _suggested(sampler: Sampler, number: int) -> dict[str, Scalar]:
    suggested = sampler.suggest(number)
    assert suggested is not None
    return suggested


def _value(number: int) -> float:
    return float((number * 7) % 10)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "cmaes"])
def test_a_rebuilt_sampler_suggests_what_the_first_would_have(name: SamplerName) -> None:
    ours = _sampler(name)
    known: list[dict[str, Scalar]] = []
    for number in range(12):  # ten of which some draw at random
        known.append(_suggested(ours, number))
        ours.finish(number, TrialOutcome(COMPLETED, None, (_value(number),), ()))
    known.append(_suggested(ours, 12))  # still running
    rebuilt = _sampler(name)
    for number, parameters in enumerate(known):
        rebuilt.begin(number, parameters)
    for number in reversed(range(12)):
        rebuilt.finish(number, TrialOutcome(COMPLETED, None, (_value(number),), ()))
    assert [rebuilt.suggest(number) for number in (13, 14)] == [ours.suggest(number) for number in (13, 14)]


@pytest.mark.parametrize("name", NAMES)
def test_another_seed_suggests_something_else(name: SamplerName) -> None:
    assert _sampler(name, seed="0").suggest(0) != _sampler(name, seed="1").suggest(0)


@pytest.mark.parametrize("name", NAMES)
def test_every_suggestion_fits_the_space_after_every_kind_of_ending(name: SamplerName) -> None:
    sampler = _sampler(name)
    endings = [
        *[TrialOutcome(COMPLETED, None, (float(value),), ((1, 9.0), (2, float(value)))) for value in range(3)],
        TrialOutcome(PRUNED, None, (), ((1, 5.0),)),
        TrialOutcome(FAILED, FailureReason.DIVERGED, (), ((1, 0.1),)),
        TrialOutcome(FAILED, FailureReason.ERROR, (), ()),
        TrialOutcome(TrialState.CANCELLED, None, (), ()),
    ]
    for number in range(21):
        values = _suggested(sampler, number)
        assert SEARCH_SPACE.check(values) == values
        sampler.finish(number, endings[number % len(endings)])


@pytest.mark.parametrize(("name", "num_trials", "num_late"), [("gp", 20, 5), ("cmaes", 40, 15)])
def test_samplers_that_learn_from_completed_trials_find_a_valley(
    name: SamplerName, num_trials: int, num_late: int
) -> None:
    space = SearchSpace("sgd", (Float("lr", 0.0, 1.0), Float("momentum", 0.0, 1.0)))
    sampler = _sampler(name, space)
    found = []
    for number in range(num_trials):
        values = _suggested(sampler, number)
        lr, momentum = (float(values[key] or 0) for key in ("lr", "momentum"))
        found.append((lr - 0.7) ** 2 + (momentum - 0.2) ** 2)
        sampler.finish(number, TrialOutcome(COMPLETED, None, (found[-1],), ()))
    assert min(found[-num_late:]) < 0.02
    assert sum(found[-num_late:]) < 0.5 * sum(found[:num_late])


def test_cma_es_goes_on_around_the_best_of_stored_trials() -> None:
    space = SearchSpace("sgd", (Float("lr", 0.0, 1.0), Float("momentum", 0.0, 1.0)))
    sampler = _sampler("cmaes", space)
    for number in range(20):
        sampler.begin(number, {"lr": 0.9, "momentum": number / 20})
        sampler.finish(number, TrialOutcome(COMPLETED, None, (abs(number - 18.0),), ()))
    suggested = [_suggested(sampler, number) for number in range(20, 26)]
    assert sum(float(values["lr"] or 0) > 0.5 and float(values["momentum"] or 0) > 0.5 for values in suggested) >= 5


def test_a_quasi_random_sequence_is_even() -> None:
    sampler = _sampler("quasi", SearchSpace("sgd", (Float("lr", 0.0, 1.0), Float("momentum", 0.0, 1.0))))
    points = [_suggested(sampler, number) for number in range(16)]
    cells = {(int(4 * float(p["lr"] or 0)), int(4 * float(p["momentum"] or 0))) for p in points}
    assert len(cells) == 16


def test_a_grid_is_tried_once_and_then_nothing_is_left() -> None:
    space = SearchSpace(
        "shampoo",
        (
            Categorical("grafting", ("adam", "sgd")),
            Float("lr", 1e-4, 1e-2, scale="log", when={"grafting": ("adam",)}),
            Integer("precondition_frequency", 1, 2),
        ),
    )
    expected = [
        {"grafting": "adam", "lr": lr, "precondition_frequency": every} for lr in (1e-4, 1e-3, 1e-2) for every in (1, 2)
    ] + [{"grafting": "sgd", "precondition_frequency": every} for every in (1, 2)]
    sampler = _sampler("grid", space)
    sampler.begin(0, expected[3])
    tried = [_suggested(sampler, number) for number in range(1, len(expected))]
    by_name = sorted(map(repr, [*tried, expected[3]]))
    assert by_name == sorted(map(repr, expected))
    assert sampler.suggest(len(expected)) is None


def test_a_grid_of_astronomical_size_is_sampled() -> None:
    space = SearchSpace("sgd", tuple(Integer(f"workload.x{index}", 1, 9) for index in range(30)))
    sampler = _sampler("grid", space)
    values = _suggested(sampler, 0)
    assert set(values.values()) == {1, 5, 9}
    assert values != _suggested(sampler, 1)


@pytest.mark.slow
def test_one_name_with_two_ranges_and_choices_of_mixed_types_can_be_learned() -> None:
    space = SearchSpace(
        "shampoo",
        (
            Categorical("training.gradient_clip_norm", (None, 1.0)),
            Categorical("workload.width", ("small", 3, False)),
            Float("lr", 0.0, 0.5, when={"workload.width": (3,)}),
            Float("lr", 0.6, 0.9, when={"workload.width": ("small", False)}),
        ),
    )
    sampler = _sampler("tpe", space)
    is_good = []
    for number in range(60):
        values = _suggested(sampler, number)
        is_good.append(values["workload.width"] == 3 and values["training.gradient_clip_norm"] is None)
        sampler.finish(number, TrialOutcome(COMPLETED, None, (0.0 if is_good[-1] else 1.0,), ()))
    assert sum(is_good[30:]) >= 15  # 5 by chance


def test_with_few_completed_trials_diverged_ones_still_rank_behind_pruned_ones() -> None:
    space = SearchSpace("sgd", (Float("lr", 0.0, 1.0),))
    sampler = _sampler("tpe", space)
    for number in range(30):
        diverges = number % 3 == 0
        sampler.begin(number, {"lr": 0.7 + number / 100 if diverges else 0.2 + number / 300})
        outcome = (
            TrialOutcome(FAILED, FailureReason.DIVERGED, (), ((1, 0.1),))
            if diverges
            else TrialOutcome(PRUNED, None, (), ((3, 5.0),))
        )
        sampler.finish(number, outcome)
    suggested = [float(_suggested(sampler, number)["lr"] or 0) for number in range(30, 40)]
    assert sum(lr < 0.5 for lr in suggested) >= 8


@pytest.mark.parametrize(
    ("outcome", "worst"),
    [
        (TrialOutcome(COMPLETED, None, (1.0,), ()), False),
        (TrialOutcome(COMPLETED, None, (math.nan,), ()), True),
        (TrialOutcome(COMPLETED, None, (), ()), True),
        (TrialOutcome(PRUNED, None, (), ((1, 2.0),)), False),
        (TrialOutcome(PRUNED, None, (), ((1, 2.0), (2, math.inf))), True),
        (TrialOutcome(PRUNED, None, (), ()), True),
        (TrialOutcome(FAILED, FailureReason.DIVERGED, (), ((1, 2.0),)), True),
        (TrialOutcome(FAILED, FailureReason.OUT_OF_MEMORY, (), ()), True),
        (TrialOutcome(FAILED, FailureReason.INFEASIBLE, (), ()), True),
        (TrialOutcome(FAILED, FailureReason.ERROR, (), ()), False),
        (TrialOutcome(FAILED, FailureReason.LOST, (), ()), False),
        (TrialOutcome(TrialState.CANCELLED, None, (1.0,), ()), False),
    ],
)
def test_endings_that_the_parameters_caused_count_as_worst(outcome: TrialOutcome, worst: bool) -> None:
    assert outcome.is_worst is worst
