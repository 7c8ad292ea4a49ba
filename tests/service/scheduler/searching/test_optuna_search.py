"""Optuna's samplers and pruners behind the policy interface."""

from __future__ import annotations

import math

import pytest

from service.domain import Direction, FailureReason, TrialState
from service.scheduler.policy import Decision, Resume, Start, TrialHistory
from service.scheduler.pruner import Asha
from service.scheduler.searching.optuna_search import OptunaSearch
from tests.service.scheduler.searching.spaces import CONDITIONAL


def search(sampler: str = "random", pruner: str = "none") -> OptunaSearch:
    return OptunaSearch(CONDITIONAL, direction=Direction.MINIMIZE, max_steps=9, sampler=sampler, pruner=pruner)


@pytest.mark.parametrize("sampler", ["random", "quasi", "tpe", "gp"])
def test_every_sampler_goes_on_after_every_kind_of_ending(sampler: str) -> None:
    policy = search(sampler)
    for index in range(14):
        asked = policy.ask()
        assert isinstance(asked, Start)
        assert asked.number == index
        CONDITIONAL.check(asked.parameters)
        policy.report(index, 1, 1.0 + index % 5)
        match index % 4:
            case 0 | 1:
                policy.tell(index, TrialState.COMPLETED, 1.0 + index % 5)
            case 2:
                policy.tell(index, TrialState.FAILED, None, FailureReason.DIVERGED)
            case _:
                policy.tell(index, TrialState.FAILED, None, FailureReason.ERROR)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown sampler 'tea'"):
        search("tea")
    with pytest.raises(ValueError, match="unknown pruner 'knife'"):
        search(pruner="knife")


@pytest.mark.parametrize("pruner", ["hyperband", "median"])
def test_a_pruner_stops_some_of_the_bad_trials(pruner: str) -> None:
    policy = search(pruner=pruner)
    stopped = []
    for number in range(30):
        policy.ask()
        is_bad = number % 2 == 1
        for step in range(1, 10):
            value = (10.0 if is_bad else 1.0) - 0.01 * step
            if policy.report(number, step, value) is Decision.STOP:
                stopped.append(number)
                policy.tell(number, TrialState.PRUNED, value)
                break
        else:
            policy.tell(number, TrialState.COMPLETED, value)
    assert sum(number % 2 for number in stopped) >= 5


def test_asha_judges_by_our_own_rungs() -> None:
    asha = Asha(min_steps=1, max_steps=9, direction=Direction.MINIMIZE)
    policy = OptunaSearch(CONDITIONAL, direction=Direction.MINIMIZE, max_steps=9, sampler="random", pruner=asha)
    decisions = []
    for number in range(6):
        policy.ask()
        decisions.append(policy.report(number, 1, float(number)))
    assert decisions == [Decision.CONTINUE, Decision.CONTINUE, *[Decision.STOP] * 4]


def test_an_interrupted_trial_is_asked_for_again() -> None:
    policy = search()
    started = policy.ask()
    assert isinstance(started, Start)
    policy.tell(0, TrialState.QUEUED)
    assert policy.ask() == Resume(0, started.phase, started.parameters)


def test_a_restored_search_knows_what_was_tried() -> None:
    policy = search("tpe")
    history = []
    for number in range(12):
        started = policy.ask()
        assert isinstance(started, Start)
        policy.report(number, 9, float(number))
        policy.tell(number, TrialState.COMPLETED, float(number))
        curve = ((9, float(number)),)
        history.append(
            TrialHistory(number, started.phase, started.parameters, TrialState.COMPLETED, None, float(number), curve)
        )
    restored = search("tpe")
    restored.restore(history)
    assert restored._study.best_value == 0.0
    assert [trial.value for trial in restored._study.trials] == [trial.value for trial in policy._study.trials]
    assert isinstance(restored.ask(), Start)
    assert not math.isnan(restored._study.best_value)
