"""How fast curves rise."""

from __future__ import annotations

import numpy as np
import pytest

from service.scheduler.policy.searching.trends import KEPT_MEAN, kept_share, trends

DISTANCES = np.linspace(1.6, 1.0, 8)


def as_is(values: np.ndarray) -> np.ndarray:
    return values


def curve(slope: float, noise: np.ndarray | float = 0.0) -> list[tuple[float, float]]:
    values = 3.0 - slope * DISTANCES + noise
    return list(zip(DISTANCES.tolist(), values.tolist(), strict=True))


def test_a_trend_is_the_gain_per_distance_beyond_the_median_curve() -> None:
    found = trends([curve(slope) for slope in (0.5, 1.0, 1.25, 1.5, 2.0)], as_is)
    np.testing.assert_allclose(found, [-0.75, -0.25, 0.0, 0.25, 0.75], atol=1e-9)


def test_only_the_last_half_of_a_curve_counts() -> None:
    early = [(d, 100.0) for d, _ in curve(0.5)[:4]]
    found = trends([[*early, *curve(0.5)[4:]], curve(1.0), curve(1.5)], as_is)
    np.testing.assert_allclose(found, [-0.5, 0.0, 0.5], atol=1e-9)


def test_curves_measured_at_other_points_compare() -> None:
    found = trends([curve(0.5)[:-1], curve(1.0), [*curve(1.5)[:4], *curve(1.5)[5:]]], as_is)
    np.testing.assert_allclose(found, [-0.5, 0.0, 0.5], atol=1e-9)


def test_differences_that_noise_explains_are_no_trends() -> None:
    noise = np.random.default_rng(0).normal(size=(200, 8))
    of_noise = trends([curve(1.0, row) for row in noise], as_is)
    assert np.abs(of_noise).max() < 0.5
    slopes = np.linspace(0.0, 2.0, 200)
    of_both = trends([curve(slope, 0.02 * row) for slope, row in zip(slopes, noise, strict=True)], as_is)
    assert np.corrcoef(of_both, slopes)[0, 1] > 0.95
    assert np.polyfit(slopes, of_both, 1)[0] == pytest.approx(1.0, abs=0.1)


def test_a_curve_with_too_few_points_has_no_trend() -> None:
    np.testing.assert_array_equal(trends([], as_is), [])
    np.testing.assert_array_equal(trends([[], curve(1.0)[:2]], as_is), [0.0, 0.0])
    np.testing.assert_allclose(trends([curve(0.5)[-2:], curve(0.5), curve(1.0), curve(1.5)], as_is)[0], 0.0)


def test_before_trials_have_finished_a_small_share_of_trends_is_expected_to_last() -> None:
    assert kept_share(np.array([1.0, -1.0]), np.array([1.0, -1.0])) == KEPT_MEAN


@pytest.mark.parametrize("share", [0.0, 0.8])
def test_finished_trials_tell_how_much_of_a_trend_lasts(share: float) -> None:
    trend = np.random.default_rng(0).uniform(-1.5, 1.5, 100)
    gain = 3.0 + share * trend + 0.1 * np.random.default_rng(1).normal(size=100)
    assert kept_share(trend, gain) == pytest.approx(share, abs=0.05)


def test_no_trend_is_taken_to_turn_round_or_to_grow() -> None:
    trend = np.linspace(-2.0, 2.0, 50)
    assert kept_share(trend, -trend) == 0.0
    assert kept_share(trend, 3 * trend) == 1.0
