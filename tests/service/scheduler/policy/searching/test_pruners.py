"""Pruners: where they judge, whom they stop, and that replaying measurements rebuilds them."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest

from service.domain import Direction, PrunerName
from service.scheduler.policy.protocol import Decision
from service.scheduler.policy.searching.pruners import Asha, Hyperband, MedianRule, NoPruner, make_pruner

CONTINUE, STOP = Decision.CONTINUE, Decision.STOP


def _asha(direction: Direction = Direction.MINIMIZE, /, **changes: int) -> Asha:
    return Asha(**{"min_steps": 10, "max_steps": 100, "reduction_factor": 3, **changes}, direction=direction)


def test_rungs_grow_by_the_reduction_factor_and_end_below_the_full_length() -> None:
    assert _asha().rungs == (10, 30, 90)
    assert _asha(max_steps=90).rungs == (10, 30)
    assert _asha(max_steps=10).rungs == ()


@pytest.mark.parametrize("direction", Direction)
def test_a_trial_outside_the_best_share_of_its_rung_is_stopped(direction: Direction) -> None:
    asha = _asha(direction)
    sign = 1 if direction is Direction.MINIMIZE else -1
    decisions = [asha.report(number, 10, sign * value) for number, value in enumerate([5.0, 9.0, 7.0, 4.0, 6.0])]
    # Two trials are too few to judge by; the third is second best of three; then 4.0 leads, and 6.0 is third of five.
    assert decisions == [CONTINUE, CONTINUE, STOP, CONTINUE, STOP]


def test_only_rungs_are_judged() -> None:
    asha = _asha()
    for number in range(3):
        assert asha.report(number, 9, float(number)) is CONTINUE
    assert [asha.report(number, 10, float(number)) for number in range(3)] == [CONTINUE, CONTINUE, STOP]
    assert asha.report(1, 29, 1e9) is CONTINUE


def test_a_measurement_beyond_a_rung_counts_for_the_highest_rung_passed() -> None:
    asha = _asha()
    for number in range(3):
        asha.report(number, 10, 1.0)
    assert asha.report(3, 40, 50.0) is CONTINUE  # the first at rung 30
    assert asha.report(4, 12, 2.0) is STOP  # worse than the three at rung 10


def test_equal_values_are_not_stopped() -> None:
    asha = _asha()
    assert {asha.report(number, 10, 1.0) for number in range(10)} == {CONTINUE}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("direction", Direction)
def test_a_value_that_is_not_finite_is_stopped_at_a_rung_and_counts_as_worst(
    value: float, direction: Direction
) -> None:
    asha = _asha(direction)
    assert asha.report(0, 5, value) is CONTINUE
    assert asha.report(0, 10, value) is STOP
    assert asha.report(1, 10, 1e300 if direction is Direction.MINIMIZE else -1e300) is CONTINUE


def test_a_trial_is_judged_once_at_each_rung() -> None:
    asha = _asha()
    assert asha.report(0, 10, 5.0) is CONTINUE
    for number in range(1, 9):
        asha.report(number, 10, 1.0)
    assert asha.report(0, 10, 5.0) is CONTINUE
    assert asha.report(0, 20, 5.0) is CONTINUE


def test_replaying_measurements_in_any_order_rebuilds_it() -> None:
    rng = random.Random(0)
    measured = [(number, step, rng.random()) for number in range(20) for step in (5, 10, 30)]
    ours, replayed = _asha(), _asha()
    for entry in measured:
        ours.report(*entry)
    for number in rng.sample(range(20), 20):
        for entry in measured:
            if entry[0] == number:
                replayed.report(*entry)
    news = [(number, step, rng.random()) for number in range(20, 40) for step in (10, 30, 90)]
    assert [ours.report(*entry) for entry in news] == [replayed.report(*entry) for entry in news]


@pytest.mark.parametrize("wrong", [{"min_steps": 0}, {"max_steps": 0}, {"reduction_factor": 1}])
def test_impossible_settings_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=str(next(iter(wrong.values())))):
        _asha(**wrong)


def test_without_a_pruner_everything_goes_on() -> None:
    assert NoPruner().report(0, 1, math.nan) is CONTINUE


@pytest.mark.parametrize("name", ["asha", "hyperband", "median"])
@pytest.mark.parametrize("direction", Direction)
def test_every_pruner_stops_mostly_bad_trials(name: PrunerName, direction: Direction) -> None:
    pruner = make_pruner(name, min_steps=1, max_steps=9, reduction_factor=3, direction=direction)
    sign = 1 if direction is Direction.MINIMIZE else -1
    stopped = []
    for number in range(60):
        for step in range(1, 10):
            value = (10.0 if number % 2 else 1.0) - 0.01 * step
            if pruner.report(number, step, sign * value) is STOP:
                stopped.append(number)
                break
    assert len(stopped) >= 10
    assert sum(number % 2 for number in stopped) >= 0.9 * len(stopped)


def test_hyperband_has_brackets_of_which_the_last_stops_nothing() -> None:
    hyperband = Hyperband(min_steps=1, max_steps=9, reduction_factor=3, direction=Direction.MINIMIZE)
    first_stop: dict[int, int] = {}
    for number in range(130):
        # Ever worse: whoever is judged after a few others is stopped.
        first_stop[number] = next(
            (step for step in range(1, 10) if hyperband.report(number, step, float(number)) is STOP), 10
        )
    counts = Counter(list(first_stop.values())[65:])
    assert counts[1] > counts[3] > counts[10] > 0


def test_the_median_rule_compares_the_best_so_far_with_averages_at_the_same_step() -> None:
    rule = MedianRule(min_steps=2, direction=Direction.MINIMIZE)
    for number in range(MedianRule.NUM_STARTUP):
        for step, value in ((1, 9.0), (2, 7.0)):
            assert rule.report(number, step, value) is CONTINUE  # their averages at step 2 are 8
    assert rule.report(7, 1, 99.0) is CONTINUE  # too early to judge
    assert rule.report(7, 2, 8.5) is STOP
    assert rule.report(8, 1, 7.5) is CONTINUE
    assert rule.report(8, 2, 20.0) is CONTINUE  # its best so far counts
    assert rule.report(9, 2, math.nan) is STOP
    assert rule.report(10, 3, 50.0) is CONTINUE  # nobody has come as far
    with pytest.raises(ValueError, match="0"):
        MedianRule(min_steps=0, direction=Direction.MINIMIZE)


def test_an_unknown_pruner_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown pruner 'knife'"):
        make_pruner(
            "knife",  # type: ignore[arg-type]
            min_steps=1,
            max_steps=9,
            reduction_factor=3,
            direction=Direction.MINIMIZE,
        )
