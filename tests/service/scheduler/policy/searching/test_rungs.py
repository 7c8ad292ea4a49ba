"""Where trials pause."""

from __future__ import annotations

import pytest

from service.scheduler.policy.searching.rungs import Rungs


def rungs(max_steps: int = 520, measure_every: int = 10, *, first: int | None = None, pauses: bool = True) -> Rungs:
    return Rungs(max_steps=max_steps, measure_every=measure_every, first=first, pauses=pauses)


def test_rungs_are_measurements_and_the_first_is_not_the_very_first() -> None:
    assert [rungs().beyond(step) for step in (0, 79, 80, 210, 520)] == [80, 80, 210, 520, 520]
    assert rungs(max_steps=50).first == 20


def test_a_given_first_rung_stands_and_no_other_comes_too_soon_after_it() -> None:
    given = rungs(first=150)
    assert given.first == 150
    assert given.beyond(150) == 520


def test_without_pauses_only_the_end_remains() -> None:
    assert rungs(pauses=False).first == 520


def test_distance_falls_with_the_logarithm_from_the_first_rung_to_the_end() -> None:
    assert rungs().distance(80) == pytest.approx(1.0)
    assert rungs().distance(520) == 0.0
    assert rungs().distance(40) - rungs().distance(80) == pytest.approx(rungs().distance(80) - rungs().distance(160))


def test_what_a_curve_says_up_to_the_first_rung() -> None:
    curve = [(step, 0.1 * step) for step in range(10, 530, 10)]
    assert rungs().at_first(curve) == (80, 8.0)
    assert [value for _, value in rungs().until_first(curve)] == [0.1 * step for step in range(10, 90, 10)]
    assert rungs().at_first(curve[:7]) is None
    assert rungs().at_first([(520, 1.0)]) is None


@pytest.mark.parametrize(("max_steps", "measure_every"), [(0, 1), (10, 0)])
def test_numbers_of_steps_are_positive(max_steps: int, measure_every: int) -> None:
    with pytest.raises(ValueError, match=f"got {max_steps} and {measure_every}"):
        rungs(max_steps, measure_every)
