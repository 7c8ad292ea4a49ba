"""The ends that are expected of stopped trials."""

from __future__ import annotations

import dataclasses
import random
import statistics
from collections.abc import Sequence

import pytest

from service.domain import Direction
from service.evidence.luck.expected_ends import SLOPE_AHEAD, ExpectedEnd, expected_ends
from service.evidence.luck.searched_side import TriedTrial
from tests.benchmarks.answers.expected_ends import probability_better, score_of, stopped_in
from tests.benchmarks.search.landscapes import table_pair

MIN, MAX = Direction.MINIMIZE, Direction.MAXIMIZE


def trial(number: int, *values: float, completed: bool = True, every: int = 1) -> TriedTrial:
    """A trial measured at steps `every`, 2 * `every`, ..."""
    return TriedTrial(number, (0.0,), [(every * (k + 1), v) for k, v in enumerate(values)], has_completed=completed)


def negated(trials: Sequence[TriedTrial]) -> list[TriedTrial]:
    return [dataclasses.replace(own, curve=[(s, -v) for s, v in own.curve]) for own in trials]


def test_a_trial_that_was_behind_stays_behind_and_one_ahead_loses_of_its_lead() -> None:
    completed = [trial(0, 5.0, 3.0, 1.0), trial(1, 6.0, 3.0, 0.0)]
    behind, ahead = trial(2, 4.0, 3.5, completed=False), trial(3, 4.0, 2.0, completed=False)
    failed = dataclasses.replace(trial(4, 1.0, completed=False), has_failed=True)
    found = expected_ends([*completed, behind, ahead, failed], MIN)
    assert {number: end.value for number, end in found.items()} == {0: 1.0, 1: 0.0, 2: 1.0, 3: 0.5 - SLOPE_AHEAD}
    assert found[0].doubt == found[1].doubt == 0.0
    assert 0.0 < found[2].doubt < found[3].doubt


def test_where_larger_is_better_all_is_the_same() -> None:
    trials = [trial(0, 5.0, 1.0), trial(1, 6.0, 0.5), trial(2, 7.0, completed=False), trial(3, 2.0, completed=False)]
    found, mirrored = expected_ends(trials, MIN), expected_ends(negated(trials), MAX)
    assert {number: (-end.value, end.doubt) for number, end in found.items()} == {
        number: (end.value, end.doubt) for number, end in mirrored.items()
    }


def test_a_curve_that_fell_early_is_not_expected_to_fall_as_far_again() -> None:
    """All completed curves of an error rate fell by about 1.05 after this place: one at 0.45 has no such way to go."""
    rng = random.Random(0)
    completed = [trial(k, 1.35 + rng.gauss(0.0, 0.1), 0.3 + rng.gauss(0.0, 0.01)) for k in range(8)]
    end = expected_ends([*completed, trial(8, 0.45, completed=False)], MIN)[8]
    assert end.value > 0.0
    assert end.value + 2.0 * end.doubt > 0.3


@pytest.mark.parametrize("slope", [0.3, 0.8])
def test_many_completed_trials_tell_the_slope(slope: float) -> None:
    rng = random.Random(1)
    befores = [rng.uniform(1.0, 3.0) for _ in range(200)]
    completed = [trial(k, before, slope * before + rng.gauss(0.0, 0.05)) for k, before in enumerate(befores)]
    for value in (0.5, 3.5):
        end = expected_ends([*completed, trial(200, value, completed=False)], MIN)[200]
        assert end.value == pytest.approx(slope * value, abs=0.1)
        assert 0.04 < end.doubt < 0.12


def test_of_one_completed_trial_the_doubt_is_as_large_as_its_own_way_was() -> None:
    found = expected_ends([trial(0, 3.0, 1.0), trial(1, 3.0, completed=False)], MIN)
    assert found[1].value == 1.0
    assert found[1].doubt > 2.0


def test_a_stopped_trial_that_trained_as_a_completed_one_did_ends_as_it_did() -> None:
    completed = [trial(0, 5.0, 3.0, 1.0), trial(1, 6.0, 3.0, 0.0)]
    stopped = [trial(2, 6.0, 3.0, completed=False), trial(3, 6.0, 2.9, completed=False)]
    found = expected_ends([*completed, *stopped], MIN)
    assert found[2] == ExpectedEnd(0.0, 0.0)
    assert found[3].doubt > 0.0


def test_equal_values_of_curves_that_have_not_moved_yet_tell_no_twins() -> None:
    completed = [trial(0, 0.1, 0.1, 0.9), trial(1, 0.1, 0.1, 0.5)]
    assert expected_ends([*completed, trial(2, 0.1, 0.1, completed=False)], MAX)[2].doubt > 0.0


@pytest.mark.parametrize("direction", [MIN, MAX])
def test_an_end_is_drawn_better_than_the_best_as_often_as_is_said(direction: Direction) -> None:
    sign = 1.0 if direction is MIN else -1.0
    end, rng = ExpectedEnd(sign * 2.0, 1.0, degrees=3), random.Random(0)
    for best in (1.0, 1.8, 3.0):
        drawn = [sign * end.drawn(sign * best, direction, rng) for _ in range(4000)]
        share = statistics.fmean(value < best for value in drawn)
        assert share == pytest.approx(probability_better(dataclasses.replace(end, value=2.0), best), abs=0.025)


def test_few_completed_trials_tell_little_of_how_far_ends_lie_from_the_line() -> None:
    """Both are as far behind the best in standard deviations of the ends around the line."""
    few, many = ExpectedEnd(3.0, 1.0, degrees=1), ExpectedEnd(3.0, 1.0, degrees=30)
    assert probability_better(few, 0.0) > 5.0 * probability_better(many, 0.0)
    completed = [trial(k, value, value) for k, value in enumerate((3.0, 2.0, 2.5, 4.0))]
    assert expected_ends([*completed, trial(4, 4.5, completed=False)], MIN)[4].degrees == 3


def test_of_a_known_end_it_is_known_whether_it_is_better() -> None:
    end = ExpectedEnd(1.0, 0.0)
    assert [probability_better(end, best) for best in (0.5, 1.0, 1.5)] == [0.0, 0.0, 1.0]
    assert end.drawn(2.0, MIN, random.Random(0)) == 1.0


def test_values_between_measurements_are_interpolated_and_beyond_them_the_nearest_count() -> None:
    completed: Sequence[TriedTrial] = [trial(0, 4.0, 2.0, 1.0, every=10), trial(1, 6.0, 4.0, 3.0, every=10)]
    ends = {}
    for seen in (5, 15, 40):
        stopped = TriedTrial(2, (0.0,), [(seen, 4.5)], has_completed=False)
        ends[seen] = expected_ends([*completed, stopped], MIN)[2].value
    # Their means there: 5.0 (the first), 4.0, 2.0 (the last); their mean end is 2.0, and both slopes are 1.
    assert ends[15] == pytest.approx(2.5)
    assert ends[40] == pytest.approx(4.5)
    assert 1.5 <= ends[5] < 2.0


@pytest.mark.slow
def test_on_real_curves_the_probability_that_a_stopped_trial_was_the_best_is_as_often_right() -> None:
    landscapes = table_pair("digits-mlp")
    found = [one.said for seed in range(8) for own in landscapes for one in stopped_in(own, "asha", 16, seed)]
    assert len(found) > 150
    said, are = (statistics.fmean(one[place] for one in found) for place in (0, 1))
    assert 0.5 * are < said < 2.0 * are
    assert score_of(found) < 1.2 * score_of([(are, is_best) for _, is_best in found])
