"""The `auto` search, alone and against random search in the simulation."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest

from search_spaces import Categorical, Float, Scalar, SearchSpace
from service.domain import Direction, FailureReason, Phase, TrialState
from service.scheduler.policy.job_policy import JobPolicy
from service.scheduler.policy.protocol import Decision, Done, GiveUp, Resume, Start, TrialHistory
from service.scheduler.policy.searching.auto import NUM_DESIGN, AutoSearch
from service.scheduler.policy.sides import SidePlan
from tests.benchmarks.search.curve_families import task
from tests.benchmarks.search.search_policies import POLICIES
from tests.benchmarks.search.search_simulation import Problem, simulate
from tests.support.service.searching.spaces import CONDITIONAL

LINE = SearchSpace("adamw", (Float("lr", 0.0, 1.0), Float("weight_decay", 0.0, 1.0)))
STEPS = 20
FIRST_RUNG = 3


class OnePhase(JobPolicy):
    """A job with one search."""

    def __init__(self, search: AutoSearch, space: SearchSpace, num_trials: int = 10**6) -> None:
        self.search = search
        super().__init__([SidePlan(Phase.SEARCH, space, num_trials, lambda: search)])


def auto(
    space: SearchSpace = LINE,
    *,
    seed: int = 0,
    direction: Direction = Direction.MAXIMIZE,
    num_trials: int = 10**6,
    pauses: bool = True,
) -> OnePhase:
    search = AutoSearch(space, direction=direction, max_steps=STEPS, seed=seed, pauses=pauses)
    return OnePhase(search, space, num_trials)


def train(policy: OnePhase, number: int, final: float, *, begin: int = 1) -> Decision:
    """Reports a straight line to the final value until the policy pauses the trial, or to its end."""
    for step in range(begin, STEPS + 1):
        if policy.report(number, step, final * step / STEPS) is Decision.PAUSE:
            return Decision.PAUSE
    policy.tell(number, TrialState.COMPLETED, (final,))
    return Decision.CONTINUE


def value_of(parameters: Mapping[str, Scalar]) -> float:
    lr, decay = parameters["lr"], parameters["weight_decay"]
    assert isinstance(lr, float)
    assert isinstance(decay, float)
    return 1.0 - (lr - 0.7) ** 2 - 0.3 * (decay - 0.2) ** 2


def test_the_defaults_are_tried_first_and_every_trial_pauses_at_the_first_rung() -> None:
    policy = auto()
    for number in range(NUM_DESIGN):
        asked = policy.ask()
        assert isinstance(asked, Start)
        assert asked.number == number
        if number == 0:
            assert asked.parameters == LINE.defaults()
        for step in range(1, FIRST_RUNG):
            assert policy.report(number, step, 1.0) is Decision.CONTINUE
        assert policy.report(number, FIRST_RUNG, float(number)) is Decision.PAUSE


def test_the_most_promising_trial_is_finished_first() -> None:
    policy = auto()
    values = {}
    for _ in range(NUM_DESIGN):
        asked = policy.ask()
        assert isinstance(asked, Start)
        values[asked.number] = value_of(asked.parameters)
        train(policy, asked.number, values[asked.number])
    resumed: list[int] = []
    while not resumed:
        asked = policy.ask()
        if isinstance(asked, Resume):
            resumed.append(asked.number)
        else:
            assert isinstance(asked, Start)
            values[asked.number] = value_of(asked.parameters)
            train(policy, asked.number, values[asked.number])
    assert values[resumed[0]] == max(values.values())


def test_of_equal_early_values_the_one_that_still_rises_goes_on_first() -> None:
    policy = auto()
    slopes: dict[int, float] = {}
    while not isinstance(asked := policy.ask(), Resume):
        assert isinstance(asked, Start)
        slopes[asked.number] = 0.1 * ((7 * asked.number) % 11)
        for step in range(1, FIRST_RUNG + 1):
            policy.report(asked.number, step, 1.0 + slopes[asked.number] * math.log(step / FIRST_RUNG))
    assert slopes[asked.number] == max(slopes.values())


def finished_members(ends: Mapping[str, float], num_finished: int) -> list[Scalar]:
    """The members of a family of which a search finishes trials first, where all look alike early."""
    space = SearchSpace(
        "shampoo",
        (
            Categorical("preconditioner", tuple(ends)),
            Float("lr", 0.0, 1.0),
            *(Float("epsilon", 0.1, 1.0 + n, when={"preconditioner": (name,)}) for n, name in enumerate(ends)),
        ),
    )
    policy = auto(space)
    finished: list[Scalar] = []
    while len(finished) < num_finished:
        asked = policy.ask()
        assert isinstance(asked, Start | Resume)
        member, lr = asked.parameters["preconditioner"], asked.parameters["lr"]
        assert isinstance(member, str)
        assert isinstance(lr, float)
        for step in range(policy.search._trials[asked.number].reached + 1, STEPS + 1):
            value = step / STEPS - 0.2 * lr + ends[member] * (step / STEPS) ** 4
            if policy.report(asked.number, step, value) is Decision.PAUSE:
                break
        else:
            policy.tell(asked.number, TrialState.COMPLETED, (value,))
            finished.append(member)
    return finished


def test_the_second_trial_that_is_finished_is_of_another_member_than_the_first() -> None:
    first, second = finished_members({"shampoo": 0.1, "soap": 0.0, "kl": 0.2, "spectral": 0.3}, 2)
    assert first != second


@pytest.mark.parametrize("num_workers", [1, 4])
def test_a_smooth_objective_is_solved_within_a_few_trainings(num_workers: int) -> None:
    def objective(config: Mapping[str, Scalar]) -> list[float]:
        return [value_of(config) * unit / STEPS for unit in range(1, STEPS + 1)]

    problem = Problem.sampled(objective, LINE, Direction.MAXIMIZE)
    assert simulate(auto(), problem, num_workers=num_workers, budgets=[10])[0] < 0.05


@pytest.mark.slow
def test_suggestions_follow_from_the_seed() -> None:
    def suggestions(seed: int) -> list[Mapping[str, Scalar]]:
        policy, found = auto(CONDITIONAL, seed=seed), []
        for _ in range(25):
            asked = policy.ask()
            assert isinstance(asked, Start | Resume)
            found.append(asked.parameters)
            begin = 1 if isinstance(asked, Start) else policy.search._trials[asked.number].reached + 1
            train(policy, asked.number, float(asked.number % 7), begin=begin)
        return found

    assert suggestions(3) == suggestions(3) != suggestions(4)


@pytest.mark.slow
def test_divergence_teaches_where_not_to_go() -> None:
    def objective(config: Mapping[str, Scalar]) -> list[float]:
        lr = config["lr"]
        assert isinstance(lr, float)
        return [lr, lr, math.nan] if lr > 0.5 else [lr * unit / STEPS for unit in range(1, STEPS + 1)]

    policy = auto()
    problem = Problem(objective, LINE, Direction.MAXIMIZE, STEPS, best=0.5, median=0.25, diverged_share=0.5)
    assert simulate(policy, problem, num_workers=1, budgets=[8, 20])[0] < 0.1
    late = [trial.rounded["lr"] for trial in list(policy.search._trials.values())[NUM_DESIGN + 8 :]]
    assert np.mean([isinstance(lr, float) and lr > 0.6 for lr in late]) < 0.25


def test_an_error_teaches_nothing_and_an_interrupted_trial_comes_again() -> None:
    policy = auto()
    first, second = policy.ask(), policy.ask()
    assert isinstance(first, Start)
    assert isinstance(second, Start)
    policy.tell(0, TrialState.FAILED, (), FailureReason.ERROR)
    policy.tell(1, TrialState.QUEUED)
    assert policy.ask() == Resume(1, Phase.SEARCH, second.parameters, FIRST_RUNG)
    assert policy.search._trials[0].forgotten


def test_a_repeated_step_changes_nothing() -> None:
    policy = auto()
    policy.ask()
    policy.report(0, 1, 1.0)
    assert policy.report(0, 1, 5.0) is Decision.CONTINUE
    assert policy.search._trials[0].curve == [(1, 1.0)]


def test_the_twin_of_a_finished_trial_is_not_finished() -> None:
    """With an objective that ignores its parameters, all trials are one."""
    policy = auto()
    resumed = 0
    for _ in range(40):
        asked = policy.ask()
        assert isinstance(asked, Start | Resume)
        resumed += isinstance(asked, Resume)
        train(policy, asked.number, 1.0, begin=policy.search._trials[asked.number].reached + 1)
    assert resumed <= 2  # to the second rung and to the end


def test_a_restored_search_goes_on_with_what_was_under_way() -> None:
    policy = auto()
    history = []
    for number in range(12):
        asked = policy.ask()
        assert isinstance(asked, Start | Resume)
        train(policy, asked.number, float(number), begin=policy.search._trials[asked.number].reached + 1)
    for trial in policy.search._trials.values():
        state = TrialState.COMPLETED if trial.final is not None else TrialState.QUEUED
        history.append(
            TrialHistory(
                trial.number,
                Phase.SEARCH,
                trial.rounded,
                state,
                None,
                () if trial.final is None else (trial.final,),
                tuple(trial.curve),
            )
        )
    running = policy.ask()
    assert isinstance(running, Start | Resume)
    if isinstance(running, Start):
        history.append(TrialHistory(running.number, Phase.SEARCH, running.parameters, TrialState.RUNNING))
    restored = auto()
    restored.restore(history)
    for number, trial in policy.search._trials.items():
        other = restored.search._trials[number]
        assert (other.curve, other.final, other.rounded) == (trial.curve, trial.final, trial.rounded)
    asked = restored.ask()
    if isinstance(running, Start):
        assert asked == Resume(running.number, Phase.SEARCH, running.parameters, FIRST_RUNG)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["plain", "conditional"])
def test_auto_beats_random_search_on_curves_with_crossings_and_cliffs(family: str) -> None:
    regrets: dict[str, list[float]] = {"auto": [], "random": []}
    for seed in range(3):
        drawn = task(family, seed)  # type: ignore[arg-type]  # a parameter of the test
        problem = Problem.sampled(drawn.objective, drawn.space, Direction.MAXIMIZE, num_configs=300)
        for name, found in regrets.items():
            found.extend(simulate(POLICIES[name](problem, seed), problem, num_workers=1, budgets=[10]))
    assert np.mean(regrets["auto"]) < 0.8 * np.mean(regrets["random"])


@pytest.mark.parametrize("num_trials", [1, 4, 30])
def test_a_search_with_a_number_of_trials_ends_with_the_best_of_them_finished(num_trials: int) -> None:
    policy = auto(num_trials=num_trials)
    values: dict[int, float] = {}
    while not isinstance(asked := policy.ask(), Done):
        assert isinstance(asked, Start | Resume | GiveUp)
        if isinstance(asked, GiveUp):
            policy.tell(asked.number, TrialState.PRUNED)
            continue
        values[asked.number] = value_of(asked.parameters)
        train(policy, asked.number, values[asked.number], begin=policy.search._trials[asked.number].reached + 1)
    finals = {number: trial.final for number, trial in policy.search._trials.items() if trial.final is not None}
    assert len(values) == num_trials
    assert max(finals.values()) == max(values.values())
    assert len(finals) < 0.7 * num_trials or num_trials < 8
    assert policy.is_done


def test_without_pauses_every_trial_is_trained_to_its_end() -> None:
    policy = auto(num_trials=14, pauses=False)
    for number in range(14):
        asked = policy.ask()
        assert isinstance(asked, Start)
        assert asked.until is None
        train(policy, number, value_of(asked.parameters))
    assert isinstance(policy.ask(), Done)
    assert max(trial.final or 0.0 for trial in policy.search._trials.values()) > 0.98


@pytest.mark.slow
def test_the_model_knows_so_many_trials_and_the_best_among_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.scheduler.policy.searching.auto.MAX_KNOWN", 24)
    policy = auto()
    for _ in range(90):
        asked = policy.ask()
        assert isinstance(asked, Start | Resume)
        begin = policy.search._trials[asked.number].reached + 1
        train(policy, asked.number, value_of(asked.parameters), begin=begin)
    policy.ask()
    trials = policy.search._trials.values()
    known = [trial for trial in trials if not trial.forgotten]
    assert len(known) <= 25
    best = max(trial.final for trial in trials if trial.final is not None)
    assert best in [trial.final for trial in known]
