"""Where trials pause."""

from __future__ import annotations

import pytest

from service.scheduler.policy.searching.rungs import Rungs


def rungs(max_steps: int = 520, *, first: int | None = None, pauses: bool = True) -> Rungs:
    return Rungs(max_steps=max_steps, first=first, pauses=pauses)


def test_rungs_lie_at_shares_of_the_trial_and_the_first_is_not_the_first_step() -> None:
    assert [rungs().beyond(step) for step in (0, 77, 78, 208, 520)] == [78, 78, 208, 520, 520]
    assert [rungs(max_steps).first for max_steps in (200, 10, 3, 2, 1)] == [30, 2, 2, 2, 1]


def test_a_given_first_rung_stands_and_no_other_comes_too_soon_after_it() -> None:
    given = rungs(first=150)
    assert given.first == 150
    assert given.beyond(150) == 520


def test_without_pauses_only_the_end_remains() -> None:
    assert rungs(pauses=False).first == 520


def test_distance_falls_with_the_logarithm_from_the_first_rung_to_the_end() -> None:
    assert rungs().distance(78) == pytest.approx(1.0)
    assert rungs().distance(520) == 0.0
    assert rungs().distance(39) - rungs().distance(78) == pytest.approx(rungs().distance(78) - rungs().distance(156))


def test_what_a_curve_says_up_to_the_first_rung() -> None:
    curve = [(step, step / 2) for step in (10, 40, 78, 80, 120, 520)]
    assert rungs().at_first(curve) == (78, 39.0)
    assert [value for _, value in rungs().until_first(curve)] == [5.0, 20.0, 39.0]
    assert rungs().at_first(curve[:2]) is None
    assert rungs().at_first([(520, 1.0)]) is None


def test_a_trial_has_steps() -> None:
    with pytest.raises(ValueError, match="got 0"):
        rungs(0)
