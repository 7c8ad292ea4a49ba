"""Samplers: suggestions that depend on stored trials alone, and what each ending counts as."""

from __future__ import annotations

import math

import pytest

from search_spaces import Categorical, Float, Scalar, SearchSpace
from service.domain import Direction, FailureReason, TrialState
from service.scheduler.study import Outcome, Sampler, SamplerName, make_sampler
from tests.service.scheduler.simulation import SEARCH_SPACE

COMPLETED, PRUNED, FAILED = TrialState.COMPLETED, TrialState.PRUNED, TrialState.FAILED


def _sampler(name: SamplerName, space: SearchSpace = SEARCH_SPACE, seed: str = "0") -> Sampler:
    return make_sampler(name, space, direction=Direction.MINIMIZE, num_trials=20, seed=seed)


def _value(number: int) -> float:
    return float((number * 7) % 10)


@pytest.mark.parametrize("name", ["tpe", "random"])
def test_a_rebuilt_sampler_suggests_what_the_first_would_have(name: SamplerName) -> None:
    ours = _sampler(name)
    known: list[dict[str, Scalar]] = []
    for number in range(15):
        known.append(ours.suggest(number))
        ours.finish(number, Outcome(COMPLETED, None, _value(number), ()))
    known.append(ours.suggest(15))  # still running
    rebuilt = _sampler(name)
    for number, parameters in enumerate(known):
        rebuilt.begin(number, parameters)
    for number in reversed(range(15)):
        rebuilt.finish(number, Outcome(COMPLETED, None, _value(number), ()))
    assert [rebuilt.suggest(number) for number in (16, 17)] == [ours.suggest(number) for number in (16, 17)]


@pytest.mark.parametrize("name", ["tpe", "random"])
def test_another_seed_suggests_something_else(name: SamplerName) -> None:
    assert _sampler(name, seed="0").suggest(0) != _sampler(name, seed="1").suggest(0)


@pytest.mark.parametrize("name", ["tpe", "random"])
def test_every_suggestion_fits_the_space(name: SamplerName) -> None:
    sampler = _sampler(name)
    for number in range(40):
        values = sampler.suggest(number)
        assert SEARCH_SPACE.check(values) == values
        sampler.finish(number, Outcome(COMPLETED, None, _value(number), ()))


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
        values = sampler.suggest(number)
        is_good.append(values["workload.width"] == 3 and values["training.gradient_clip_norm"] is None)
        sampler.finish(number, Outcome(COMPLETED, None, 0.0 if is_good[-1] else 1.0, ()))
    assert sum(is_good[30:]) >= 15  # 5 by chance


def test_with_few_completed_trials_diverged_ones_still_rank_behind_pruned_ones() -> None:
    space = SearchSpace("sgd", (Float("lr", 0.0, 1.0),))
    sampler = _sampler("tpe", space)
    for number in range(30):
        diverges = number % 3 == 0
        sampler.begin(number, {"lr": 0.7 + number / 100 if diverges else 0.2 + number / 300})
        outcome = (
            Outcome(FAILED, FailureReason.DIVERGED, None, ((1, 0.1),))
            if diverges
            else Outcome(PRUNED, None, None, ((3, 5.0),))
        )
        sampler.finish(number, outcome)
    suggested = [float(sampler.suggest(number)["lr"] or 0) for number in range(30, 40)]
    assert sum(lr < 0.5 for lr in suggested) >= 8


@pytest.mark.parametrize(
    ("outcome", "worst"),
    [
        (Outcome(COMPLETED, None, 1.0, ()), False),
        (Outcome(COMPLETED, None, math.nan, ()), True),
        (Outcome(COMPLETED, None, None, ()), True),
        (Outcome(PRUNED, None, None, ((1, 2.0),)), False),
        (Outcome(PRUNED, None, None, ((1, 2.0), (2, math.inf))), True),
        (Outcome(PRUNED, None, None, ()), True),
        (Outcome(FAILED, FailureReason.DIVERGED, None, ((1, 2.0),)), True),
        (Outcome(FAILED, FailureReason.OUT_OF_MEMORY, None, ()), True),
        (Outcome(FAILED, FailureReason.INFEASIBLE, None, ()), True),
        (Outcome(FAILED, FailureReason.ERROR, None, ()), False),
        (Outcome(FAILED, FailureReason.LOST, None, ()), False),
        (Outcome(TrialState.CANCELLED, None, 1.0, ()), False),
    ],
)
def test_endings_that_the_parameters_caused_count_as_worst(outcome: Outcome, worst: bool) -> None:
    assert outcome.is_worst is worst
