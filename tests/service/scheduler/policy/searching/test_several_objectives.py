"""Searches for a front: what genetic samplers find and forget, and that stored trials are all they know."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from functools import cache

import numpy as np
import pytest

from search_spaces import Float, Scalar, SearchSpace
from service.domain import Direction, FailureReason, Phase, SamplerName, TrialState
from service.evidence.pareto_front import pareto_front
from service.scheduler.policy.job_policy import JobPolicy
from service.scheduler.policy.protocol import Done, Start, TrialHistory
from service.scheduler.policy.searching.phase_search import SampledSearch, Sampler, TrialOutcome
from service.scheduler.policy.searching.pruners import NoPruner
from service.scheduler.policy.searching.samplers import make_sampler
from service.scheduler.policy.searching.sampling.genetic import num_parents
from service.scheduler.policy.sides import SidePlan
from tests.support.service.searching.simulation import MAX_STEPS, SEARCH_SPACE, loss

MIN, MAX = Direction.MINIMIZE, Direction.MAXIMIZE
COMPLETED, FAILED = TrialState.COMPLETED, TrialState.FAILED
GENETIC: list[SamplerName] = ["nsga2", "nsga3"]
LEARNING: list[SamplerName] = [*GENETIC, "tpe"]

# Zitzler, Deb and Thiele's first problem: the front is f2 = 1 - sqrt(f1), where all parameters but the first are 0.
NAMES = ("lr", "betas[0]", "epsilon", "weight_decay", "momentum")
SPACE = SearchSpace("shampoo", tuple(Float(name, 1e-6, 0.999) for name in NAMES))
WORST = (1.0, 6.0)


def _zdt1(parameters: Mapping[str, Scalar]) -> tuple[float, float]:
    first, *rest = (float(value or 0) for value in parameters.values())
    slope = 1 + 9 * sum(rest) / len(rest)
    return first, slope * (1 - math.sqrt(first / slope))


def _loss_and_cost(parameters: Mapping[str, Scalar]) -> tuple[float, float]:
    """Of the simulation's conditional space; refreshing seldom costs little."""
    every = float(parameters["precondition_frequency"] or 0)
    return loss(parameters, MAX_STEPS) + 0.3 * math.log10(every), -20 / every


def _area(points: list[tuple[float, float]]) -> float:
    """The share of the rectangle up to `WORST` that the points dominate."""
    area, height = 0.0, WORST[1]
    for number in pareto_front(dict(enumerate(points)), (MIN, MIN)):
        first, second = points[number]
        if first < WORST[0] and second < height:
            area += (WORST[0] - first) * (height - second)
            height = second
    return area / (WORST[0] * WORST[1])


def _sampler(name: SamplerName, space: SearchSpace = SPACE, *, num_trials: int = 60, seed: str = "0") -> Sampler:
    return make_sampler(name, space, directions=(MIN, MIN), num_trials=num_trials, seed=seed)


def _suggested(sampler: Sampler, number: int) -> dict[str, Scalar]:
    suggested = sampler.suggest(number)
    assert suggested is not None
    return suggested


@cache
def _found(name: SamplerName, seed: int) -> float:
    sampler = _sampler(name, seed=str(seed))
    points = []
    for number in range(60):
        points.append(_zdt1(_suggested(sampler, number)))
        sampler.finish(number, TrialOutcome(COMPLETED, None, points[-1], ()))
    return _area(points)


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNING)
def test_a_known_front_is_found_better_than_by_random_draws(name: SamplerName) -> None:
    seeds = range(3 if name == "tpe" else 6)
    ours, theirs = ([_found(each, seed) for seed in seeds] for each in (name, "random"))
    assert np.mean(ours) > np.mean(theirs) + 0.04


@pytest.mark.parametrize("name", LEARNING)
def test_a_rebuilt_sampler_suggests_what_the_first_would_have(name: SamplerName) -> None:
    ours = _sampler(name, SEARCH_SPACE)
    known: list[dict[str, Scalar]] = []
    outcomes = []
    for number in range(24):
        known.append(_suggested(ours, number))
        value, cost = _loss_and_cost(known[-1])
        if number % 7 == 3:
            outcomes.append(TrialOutcome(COMPLETED, None, (0.0, math.nan), ()))
        elif math.isnan(value):
            outcomes.append(TrialOutcome(FAILED, FailureReason.DIVERGED, (), ()))
        else:
            outcomes.append(TrialOutcome(COMPLETED, None, (value, cost), ()))
        ours.finish(number, outcomes[-1])
    known.append(_suggested(ours, 24))  # still running
    rebuilt = _sampler(name, SEARCH_SPACE)
    for number, parameters in enumerate(known):
        rebuilt.begin(number, parameters)
    for number in reversed(range(24)):
        rebuilt.finish(number, outcomes[number])
    assert [rebuilt.suggest(number) for number in (25, 26)] == [ours.suggest(number) for number in (25, 26)]


@pytest.mark.parametrize("name", GENETIC)
def test_parameters_under_a_condition_are_inherited(name: SamplerName) -> None:
    sampler = _sampler(name, SEARCH_SPACE, num_trials=32)
    for number in range(8):
        # Each has a large value of its own; a random one would be below 0.1 in three of four draws.
        parameters: dict[str, Scalar] = {
            "grafting": "adam",
            "lr": 0.5 + number / 100,
            "betas[0]": 0.9,
            "precondition_frequency": 10,
        }
        sampler.begin(number, parameters)
        sampler.finish(number, TrialOutcome(COMPLETED, None, (float(number), -float(number)), ()))
    children = [_suggested(sampler, number) for number in range(8, 48)]
    rates = [float(child["lr"] or 0) for child in children if child["grafting"] == "adam"]
    assert len(rates) > 20
    assert sum(0.5 <= rate < 0.58 for rate in rates) > len(rates) / 4


@pytest.mark.parametrize("name", GENETIC)
def test_no_child_is_the_twin_of_an_earlier_trial(name: SamplerName) -> None:
    sampler = _sampler(name, SEARCH_SPACE, num_trials=32)
    seen = []
    for number in range(60):
        seen.append(tuple(_suggested(sampler, number).items()))
        sampler.finish(number, TrialOutcome(COMPLETED, None, (1.0, 1.0), ()))
    assert len(set(seen)) == len(seen)


def test_a_trial_that_lacks_an_objective_has_no_children() -> None:
    sampler = _sampler("nsga2", SEARCH_SPACE, num_trials=32)
    for number in range(16):
        lacks = number % 2 == 0
        parameters: dict[str, Scalar] = {
            "grafting": "sgd" if lacks else "adam",
            "lr": 0.05,
            "betas[0]": 0.9,
            "precondition_frequency": number + 1,
        }
        sampler.begin(number, parameters)
        values = (0.0, math.nan) if lacks else (float(number), -float(number))
        sampler.finish(number, TrialOutcome(COMPLETED, None, values, ()))
    children = [_suggested(sampler, number) for number in range(16, 56)]
    assert sum(child["grafting"] == "adam" for child in children) > 28  # mutations choose anew


def test_the_number_of_parents_follows_the_budget() -> None:
    assert [num_parents(number) for number in (2, 20, 100, 1000)] == [8, 8, 25, 50]


@pytest.mark.parametrize("name", ["gp", "cmaes"])
def test_a_sampler_of_one_objective_is_refused(name: SamplerName) -> None:
    with pytest.raises(ValueError, match="knows one objective, got 2"):
        _sampler(name)


def _policy(num_trials: int = 24, patience: int | None = None) -> JobPolicy:
    def search() -> SampledSearch:
        return SampledSearch(_sampler("nsga2", SEARCH_SPACE, num_trials=num_trials), NoPruner())

    return JobPolicy(
        [SidePlan(Phase.SEARCH, SEARCH_SPACE, num_trials, search, patience=patience, directions=(MIN, MIN))]
    )


def _train(policy: JobPolicy, rows: dict[int, TrialHistory], num_trials: int) -> None:
    """Trains up to so many new trials, one at a time."""
    for _ in range(num_trials):
        asked = policy.ask()
        if not isinstance(asked, Start):
            assert asked == Done()
            break
        values = _loss_and_cost(asked.parameters)
        state, reason = (FAILED, FailureReason.DIVERGED) if math.isnan(values[0]) else (COMPLETED, None)
        known = () if reason else values
        rows[asked.number] = TrialHistory(asked.number, asked.phase, asked.parameters, state, reason, known)
        policy.tell(asked.number, state, known, reason)


def test_a_restored_job_finds_the_same_front() -> None:
    whole: dict[int, TrialHistory] = {}
    _train(_policy(), whole, 30)
    interrupted: dict[int, TrialHistory] = {}
    while len(interrupted) < 24:
        policy = _policy()
        rows = list(interrupted.values())
        random.Random(len(rows)).shuffle(rows)
        policy.restore(rows)
        _train(policy, interrupted, 7)
    assert interrupted == whole


@pytest.mark.slow
def test_tpe_avoids_where_trials_do_not_measure_all_objectives() -> None:
    num_measured = 0
    for seed in range(4):
        sampler = _sampler("tpe", seed=str(seed))
        for number in range(40):
            suggested = _suggested(sampler, number)
            first, second = _zdt1(suggested)
            is_measured = float(suggested["betas[0]"] or 0) > 0.7  # which is not where the front is
            num_measured += is_measured and number >= 20
            sampler.finish(number, TrialOutcome(COMPLETED, None, (first, second if is_measured else math.nan), ()))
    assert num_measured > 0.45 * 4 * 20  # at random 0.3


def test_patience_goes_by_the_first_objective_while_no_trial_has_all() -> None:
    policy = _policy(20, patience=3)
    for number, value in enumerate([5.0, 4.0, 6.0, 7.0, 4.0]):
        assert isinstance(policy.ask(), Start), number
        policy.tell(number, COMPLETED, (value, math.nan))
    assert policy.ask() == Done()


def test_patience_counts_from_the_last_trial_on_the_front() -> None:
    policy = _policy(20, patience=3)
    values = [(5.0, 5.0), (6.0, 4.0), (7.0, 3.0), (8.0, 8.0), (9.0, 1.0), (9.0, 2.0), (math.nan, 0.0), (1.0, math.nan)]
    for number, both in enumerate(values):
        assert isinstance(policy.ask(), Start), number
        policy.tell(number, COMPLETED, both)
    assert policy.ask() == Done()
    restored = _policy(20, patience=3)
    parameters = SEARCH_SPACE.defaults()
    restored.restore(
        [TrialHistory(number, Phase.SEARCH, parameters, COMPLETED, values=both) for number, both in enumerate(values)]
    )
    assert restored.is_done
