"""Student's t against SciPy's, and what is refused."""

from __future__ import annotations

import random

import pytest

from service.evidence.comparison.student_t import cumulative, drawn, quantile


@pytest.mark.parametrize("degrees_of_freedom", [1, 2, 3, 4, 5, 8, 31, 400])
@pytest.mark.parametrize("probability", [0.025, 0.5, 0.6, 0.975, 1 - 0.05 / 6, 0.9999])
def test_quantiles_are_those_of_scipy(probability: float, degrees_of_freedom: int) -> None:
    from scipy import stats  # half a second that every process of a run would pay

    expected = stats.t.ppf(probability, degrees_of_freedom)
    # Rounding of the distribution function, of 1e-16, is divided by a density as low as 1e-8 there.
    assert quantile(probability, degrees_of_freedom) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(("probability", "degrees_of_freedom"), [(0.0, 3), (1.0, 3), (1.5, 3), (0.9, 0)])
def test_what_is_no_quantile_is_refused(probability: float, degrees_of_freedom: int) -> None:
    with pytest.raises(ValueError, match=r"must be in \(0, 1\)|must be at least 1"):
        quantile(probability, degrees_of_freedom)


@pytest.mark.parametrize("degrees_of_freedom", [1, 2, 7, 30])
def test_the_distribution_function_is_that_of_scipy(degrees_of_freedom: int) -> None:
    from scipy import stats

    for t in (-30.0, -1.5, 0.0, 0.3, 8.0):
        assert cumulative(t, degrees_of_freedom) == pytest.approx(stats.t.cdf(t, degrees_of_freedom), rel=1e-9)


@pytest.mark.parametrize("degrees_of_freedom", [1, 2, 7])
def test_draws_lie_below_quantiles_as_often_as_these_say(degrees_of_freedom: int) -> None:
    rng = random.Random(0)
    draws = [drawn(degrees_of_freedom, rng) for _ in range(20_000)]
    for probability in (0.05, 0.5, 0.9):
        below = quantile(probability, degrees_of_freedom)
        assert sum(draw < below for draw in draws) / len(draws) == pytest.approx(probability, abs=0.01)
