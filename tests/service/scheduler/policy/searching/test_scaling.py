"""The model's scale of values."""

from __future__ import annotations

import math

import numpy as np
import pytest

from service.scheduler.policy.searching.scaling import Scale


def test_a_few_exploded_runs_do_not_squeeze_the_others() -> None:
    given = np.array([*np.linspace(0.0, 1.0, 20), -1e3, -1e9, math.nan])
    values = Scale(given, is_minimised=False)(given)
    assert values.mean() == pytest.approx(0.0)
    assert values[19] - values[0] > 1.0
    assert (np.diff(values[:20]) > 0).all()
    assert values[22] <= values[21] <= values[20] < values[0]


def test_positive_values_that_are_minimised_are_compared_by_ratio() -> None:
    steps = np.diff(Scale(np.array([1.0, 0.1, 0.01]), is_minimised=True)(np.array([1.0, 0.1, 0.01])))
    assert steps[0] == pytest.approx(steps[1])
    assert steps[0] > 0


@pytest.mark.parametrize(("is_minimised", "sign"), [(True, -1.0), (False, 1.0)])
def test_values_of_any_sign_are_compared_by_difference(is_minimised: bool, sign: float) -> None:
    given = np.array([2.0, 1.0, 0.0])
    np.testing.assert_allclose(
        np.diff(Scale(given, is_minimised=is_minimised)(given)), -sign * math.sqrt(1.5), atol=1e-9
    )


def test_another_value_is_on_the_same_scale_and_a_better_one_than_all_that_made_it_too() -> None:
    scale = Scale(np.array([1.0, 0.1, 0.01]), is_minimised=True)
    table = scale(np.array([[0.1, 1.0], [0.0, -3.0]]))
    np.testing.assert_allclose(table[0], scale(np.array([0.1, 1.0])))
    np.testing.assert_allclose(table[1], scale(np.array([0.01, 0.01])))


def test_without_a_finite_value_all_are_equal() -> None:
    np.testing.assert_array_equal(Scale(np.full(3, math.nan), is_minimised=True)(np.full(3, math.nan)), np.zeros(3))


@pytest.mark.parametrize("is_minimised", [True, False])
@pytest.mark.parametrize("given", [[3.0, 1.0, 0.1, 0.11, 0.12, 0.13, 1e6], [-2.0, 0.0, 1.0, 1.5, 2.0, -1e3]])
def test_the_way_back_gives_the_values_again(given: list[float], is_minimised: bool) -> None:
    scale = Scale(np.array(given), is_minimised=is_minimised)
    near = np.array(given[:-1])
    np.testing.assert_allclose(scale.back(scale(near)), near, rtol=1e-9, atol=1e-12)
    assert np.isfinite(scale.back(np.array([-1e3, 1e1]))).all()
