"""The interval of a difference over seeds: what it holds, how often it errs, and when further seeds cannot matter."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from service.evidence.comparison.confirm import verdict_of
from service.evidence.comparison.paired import interval_of, is_settled, num_outliers
from service.evidence.types import Verdict


def test_the_ends_that_the_sign_test_leaves_out_are_those_of_the_binomial() -> None:
    from scipy import stats  # half a second that every process of a run would pay

    for num_seeds in range(2, 40):
        expected = max([num for num in range(num_seeds) if stats.binom.cdf(num, num_seeds, 0.5) <= 0.025], default=0)
        assert num_outliers(num_seeds) == expected


def test_one_seed_that_says_otherwise_keeps_the_interval_open() -> None:
    interval = interval_of([10.0, 10.1, 9.9, 10.0, 10.1, -0.1])
    assert interval.low <= -0.1
    assert interval.high > interval.mean


def test_two_equal_differences_leave_open_whether_there_is_one() -> None:
    interval = interval_of([0.93 - 0.83, 0.95 - 0.85])  # equal up to rounding
    assert (interval.low, interval.high) == pytest.approx((0.0, 0.2), abs=1e-12)
    assert verdict_of(interval, 1.0) is Verdict.UNDECIDED
    assert verdict_of(interval_of([0.0, 0.0]), 1.0) is Verdict.EQUAL
    assert interval_of([0.1, 0.1, 0.1]).low == pytest.approx(0.1)


@pytest.mark.parametrize("num_seeds", [2, 3])
def test_few_seeds_of_a_coarse_metric_seldom_call_no_difference_one(num_seeds: int) -> None:
    rng = random.Random(0)
    samples = [
        [round(rng.gauss(90, 1)) / 100 - round(rng.gauss(90, 1)) / 100 for _ in range(num_seeds)] for _ in range(3000)
    ]
    assert sum(interval_of(sample).low > 0 for sample in samples) / 3000 < 0.025


@pytest.mark.parametrize(
    "difference",
    [
        lambda rng: rng.gauss(0, 1),
        lambda rng: rng.choice((-1.0, 1.0)) + rng.gauss(0, 0.01),
        lambda rng: -0.01 if rng.random() < 0.5 else rng.uniform(9, 10),
        lambda rng: rng.gauss(0, 1) / rng.gauss(0, 1),
    ],
    ids=["normal", "two outcomes", "skewed", "heavy tails"],
)
def test_six_seeds_seldom_lie_on_the_wrong_side_of_a_median_of_zero(
    difference: Callable[[random.Random], float],
) -> None:
    rng = random.Random(0)
    num_wrong = sum(interval_of([difference(rng) for _ in range(6)]).low > 0 for _ in range(3000))
    assert num_wrong / 3000 < 0.025


def test_a_comparison_is_settled_once_no_seed_can_make_a_verdict() -> None:
    def settled(*differences: float, num_planned: int = 6) -> bool:
        return is_settled(differences, num_planned=num_planned, equal_within=0.1)

    assert settled(1.0, -1.0, 1.0)
    assert not settled(1.0, -1.0)  # of two seeds a spread says nothing yet
    assert not settled(1.0, 1.0, 1.0)
    assert not settled(0.05, -0.05, 0.05)  # it may be `equal`
    assert not settled(1.0, -1.0, 1.0, num_planned=9)  # of nine, one may lie beyond the interval
    assert settled(1.0, -1.0, 1.0, -1.0, num_planned=9)
