"""Which configs are trained again, with which seeds, in which order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pytest

from service.domain import Direction, Phase, Side, TrialState
from service.scheduler.policy.confirmation import Confirmation
from service.scheduler.policy.protocol import Repeats


def _confirmation(
    *found: tuple[int, Side, float | None],
    top_k: int = 2,
    choosing: Sequence[int] = (1,),
    comparing: Sequence[int] = (2, 3),
    direction: Direction = Direction.MINIMIZE,
    stops_early: bool = True,
) -> Confirmation:
    confirmation = Confirmation(
        top_k=top_k, choosing=choosing, comparing=comparing, direction=direction, stops_early=stops_early
    )
    for number, side, value in found:
        confirmation.add(number, side, {"lr": 10.0**-number}, value)
    return confirmation


def _left(confirmation: Confirmation) -> list[tuple[int, int]]:
    return [(repeats.number, repeats.seed) for repeats in confirmation.left()]


FAILS = math.nan


Values = Mapping[int, float | Mapping[int, float]]


def _train(confirmation: Confirmation, values: Values) -> list[tuple[int, int]]:
    """Trains what is left, one trial after the other, to these values by config or by config and seed; what it was."""
    trained = []
    while left := confirmation.left():
        repeats = left[0]
        value = values[repeats.number]
        value = value if isinstance(value, int | float) else value[repeats.seed]
        confirmation.begin(repeats)
        state = TrialState.FAILED if math.isnan(value) else TrialState.COMPLETED
        confirmation.end(repeats, state, None if math.isnan(value) else value)
        trained.append((repeats.number, repeats.seed))
    return trained


FOUND = [
    (0, Phase.SEARCH, 0.5),
    (1, Phase.BASELINE, 0.4),
    (2, Phase.SEARCH, 0.3),
    (3, Phase.SEARCH, 0.4),
    (4, Phase.BASELINE, 0.35),
    (5, Phase.BASELINE, 0.6),
]


def test_as_many_of_the_baseline_as_of_the_search_are_trained_and_the_best_of_each_go_on() -> None:
    confirmation = _confirmation(*FOUND)
    assert _left(confirmation) == [(2, 1), (3, 1), (4, 1), (1, 1)]
    first, *_, last = confirmation.left()
    assert (first.side, last.side) == (Phase.SEARCH, Phase.BASELINE)
    # The found values were luck: trial 3 of the search and trial 1 of the baseline do better with the new seed.
    trained = _train(confirmation, {2: 0.45, 3: 0.41, 4: 0.55, 1: 0.5})
    assert trained == [(2, 1), (3, 1), (4, 1), (1, 1), (3, 2), (1, 2), (3, 3), (1, 3)]


def test_of_several_baselines_each_sends_its_best_and_one_of_them_all_goes_on() -> None:
    confirmation = _confirmation(*FOUND, (6, "muon", 0.7), (7, "muon", 0.8), (8, "muon", 0.9))
    assert [confirmation.num_lacking(side) for side in (Phase.SEARCH, Phase.BASELINE, "muon")] == [0, 0, 0]
    trained = _train(confirmation, {2: 0.45, 3: 0.41, 4: 0.55, 1: 0.5, 6: 0.9, 7: 0.3})
    assert trained[:6] == [(2, 1), (3, 1), (4, 1), (1, 1), (6, 1), (7, 1)]
    assert trained[6:] == [(3, 2), (7, 2), (3, 3), (7, 3)]


def test_the_second_stage_waits_for_the_first_and_what_was_begun_is_not_begun_again() -> None:
    confirmation = _confirmation(*FOUND, top_k=2)
    begun = confirmation.left()
    for repeats in begun:
        confirmation.begin(repeats)
    assert _left(confirmation) == []
    for repeats in begun[:3]:
        confirmation.end(repeats, TrialState.COMPLETED, 0.1 * repeats.number)
    assert _left(confirmation) == []
    confirmation.end(begun[3], TrialState.COMPLETED, 0.5)
    assert _left(confirmation) == [(2, 2), (4, 2), (2, 3), (4, 3)]
    with pytest.raises(ValueError, match="trial 3 was begun with seed 1 before"):
        confirmation.begin(Repeats(3, Phase.SEARCH, seed=1))


def test_a_config_that_fails_gives_way_to_the_next_of_its_side_on_both_sides_alike() -> None:
    values: Values = {2: {1: 0.1, 2: FAILS}, 3: 0.3, 4: FAILS, 1: {1: 0.4, 2: 0.4, 3: 0.4}}
    trained = _train(_confirmation(*FOUND), values)
    assert trained == [(2, 1), (3, 1), (4, 1), (1, 1), (2, 2), (3, 2), (1, 2), (3, 3), (1, 3)]
    values = {2: 0.2, 3: 0.3, 4: {1: 0.1, 2: 0.1, 3: FAILS}, 1: 0.4}
    trained = _train(_confirmation(*FOUND), values)
    assert trained[-2:] == [(1, 2), (1, 3)]
    assert trained.count((2, 2)) == 1


def test_where_all_of_a_side_fail_the_other_one_is_trained_to_its_end() -> None:
    trained = _train(_confirmation(*FOUND), {2: 0.2, 3: 0.3, 4: FAILS, 1: FAILS})
    assert trained[4:] == [(2, 2), (2, 3)]
    assert _train(_confirmation(*FOUND), {2: FAILS, 3: FAILS, 4: FAILS, 1: FAILS}) == trained[:4]


def test_where_the_search_completed_no_trial_nothing_is_trained_again() -> None:
    assert _left(_confirmation(*(trial for trial in FOUND if trial[1] is Phase.BASELINE))) == []
    assert _left(_confirmation(*(trial for trial in FOUND if trial[1] is Phase.SEARCH))) != []


def test_seeds_that_contradict_each_other_end_it_early() -> None:
    ours, theirs = dict(enumerate([0.3, 0.3, 0.5, 0.3, 0.3, 0.3, 0.3], start=1)), 0.4
    confirmation = _confirmation(*FOUND, top_k=1, choosing=(), comparing=range(1, 8))
    assert _train(confirmation, {2: ours, 4: theirs})[-1] == (4, 3)
    steady = _confirmation(*FOUND, top_k=1, choosing=(), comparing=range(1, 8))
    assert _train(steady, {2: 0.3, 4: theirs})[-1] == (4, 7)
    by_seconds = _confirmation(*FOUND, top_k=1, choosing=(), comparing=range(1, 8), stops_early=False)
    assert _train(by_seconds, {2: ours, 4: theirs})[-1] == (4, 7)


def test_a_trial_that_a_user_cancels_takes_its_config_out_of_the_choice() -> None:
    confirmation = _confirmation(*FOUND)
    for repeats in confirmation.left():
        confirmation.begin(repeats)
        state = TrialState.CANCELLED if repeats.number == 2 else TrialState.COMPLETED
        confirmation.end(repeats, state, 0.1)
    assert _left(confirmation) == [(3, 2), (4, 2), (3, 3), (4, 3)]


def test_the_larger_value_is_better_where_the_metric_is_maximised() -> None:
    confirmation = _confirmation(*FOUND, top_k=1, choosing=(), direction=Direction.MAXIMIZE)
    assert _left(confirmation) == [(0, 2), (5, 2), (0, 3), (5, 3)]
    chosen = _train(_confirmation(*FOUND, direction=Direction.MAXIMIZE), {0: 0.1, 3: 0.2, 5: 0.3, 1: 0.4})
    assert chosen[4:] == [(3, 2), (1, 2), (3, 3), (1, 3)]


def test_the_order_in_which_trials_ended_does_not_matter() -> None:
    assert _left(_confirmation(*reversed(FOUND))) == _left(_confirmation(*FOUND))


def test_fewer_completed_trials_than_wanted_are_all_confirmed() -> None:
    assert _train(_confirmation((7, Phase.SEARCH, 0.5), top_k=5), {7: 0.5}) == [(7, 1), (7, 2), (7, 3)]
    assert _left(_confirmation()) == []


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_a_value_that_is_not_finite_does_not_count(value: float | None) -> None:
    assert _left(_confirmation((0, Phase.SEARCH, value), (1, Phase.SEARCH, 0.5))) == [(1, 1)]


def test_equal_parameters_are_confirmed_once_and_equal_values_by_number() -> None:
    confirmation = _confirmation()
    for number, lr in [(5, 0.1), (3, 0.2), (2, 0.1), (4, 0.3)]:
        confirmation.add(number, Phase.SEARCH, {"lr": lr}, 0.5)
    assert _left(confirmation) == [(2, 1), (3, 1)]


def test_a_better_trial_that_comes_later_is_confirmed_too() -> None:
    confirmation = _confirmation(*FOUND, top_k=1, choosing=())
    _train(confirmation, {2: 0.3, 4: 0.4})
    confirmation.add(9, Phase.SEARCH, {"lr": 1.0}, 0.1)
    assert _left(confirmation) == [(9, 2), (9, 3)]


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="top_k must be at least 1, got 0"):
        _confirmation(top_k=0)
    with pytest.raises(ValueError, match=r"seeds must differ, got \[1, 1, 2\]"):
        _confirmation(comparing=[1, 2])
