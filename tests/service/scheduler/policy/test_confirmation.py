"""Which configs are trained again, with which seeds, in which order."""

from __future__ import annotations

import math

import pytest

from service.domain import Direction, Phase
from service.scheduler.policy.confirmation import Confirmation
from service.scheduler.policy.protocol import Repeats


def _confirmation(
    *found: tuple[int, Phase, float | None], top_k: int = 2, direction: Direction = Direction.MINIMIZE
) -> Confirmation:
    confirmation = Confirmation(top_k=top_k, seeds=[1, 2], direction=direction)
    for number, phase, value in found:
        confirmation.add(number, phase, {"lr": 10.0**-number}, value)
    return confirmation


def _left(confirmation: Confirmation) -> list[tuple[int, int]]:
    return [(repeats.number, repeats.seed) for repeats in confirmation.left()]


FOUND = [
    (0, Phase.SEARCH, 0.5),
    (1, Phase.BASELINE, 0.4),
    (2, Phase.SEARCH, 0.3),
    (3, Phase.SEARCH, 0.4),
    (4, Phase.BASELINE, 0.35),
]


def test_the_best_of_the_search_and_of_the_baseline_get_every_seed_one_seed_after_the_other() -> None:
    confirmation = _confirmation(*FOUND)
    assert _left(confirmation) == [(2, 1), (3, 1), (4, 1), (2, 2), (3, 2), (4, 2)]
    first, *_, last = confirmation.left()
    assert (first.phase, last.phase) == (Phase.SEARCH, Phase.BASELINE)


def test_what_was_begun_is_not_begun_again() -> None:
    confirmation = _confirmation(*FOUND)
    for number in (3, 2):
        confirmation.begin(Repeats(number, Phase.SEARCH, seed=1))
    assert _left(confirmation) == [(4, 1), (2, 2), (3, 2), (4, 2)]
    with pytest.raises(ValueError, match="trial 3 was begun with seed 1 before"):
        confirmation.begin(Repeats(3, Phase.SEARCH, seed=1))


def test_the_larger_value_is_better_where_the_metric_is_maximised() -> None:
    assert _left(_confirmation(*FOUND, top_k=1, direction=Direction.MAXIMIZE)) == [(0, 1), (1, 1), (0, 2), (1, 2)]


def test_the_order_in_which_trials_ended_does_not_matter() -> None:
    assert _left(_confirmation(*reversed(FOUND))) == _left(_confirmation(*FOUND))


def test_fewer_completed_trials_than_wanted_are_all_confirmed() -> None:
    assert _left(_confirmation((7, Phase.SEARCH, 0.5), top_k=5)) == [(7, 1), (7, 2)]
    assert _left(_confirmation((7, Phase.BASELINE, 0.5))) == [(7, 1), (7, 2)]
    assert _left(_confirmation()) == []


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_a_value_that_is_not_finite_does_not_count(value: float | None) -> None:
    assert _left(_confirmation((0, Phase.SEARCH, value), (1, Phase.SEARCH, 0.5))) == [(1, 1), (1, 2)]


def test_equal_parameters_are_confirmed_once_and_equal_values_by_number() -> None:
    confirmation = Confirmation(top_k=2, seeds=[1, 2], direction=Direction.MINIMIZE)
    for number, lr in [(5, 0.1), (3, 0.2), (2, 0.1), (4, 0.3)]:
        confirmation.add(number, Phase.SEARCH, {"lr": lr}, 0.5)
    assert _left(confirmation) == [(2, 1), (3, 1), (2, 2), (3, 2)]


def test_a_better_trial_that_comes_later_is_confirmed_too() -> None:
    confirmation = _confirmation(*FOUND, top_k=1)
    for repeats in confirmation.left():
        confirmation.begin(repeats)
    confirmation.add(9, Phase.SEARCH, {"lr": 1.0}, 0.1)
    assert _left(confirmation) == [(9, 1), (9, 2)]


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="top_k must be at least 1, got 0"):
        Confirmation(top_k=0, seeds=[1, 2], direction=Direction.MINIMIZE)
    with pytest.raises(ValueError, match=r"seeds must differ, got \[1, 1\]"):
        Confirmation(top_k=1, seeds=[1, 1], direction=Direction.MINIMIZE)
