"""Expected improvement, and the search for candidates."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from service.scheduler.policy.searching.acquisition import log_expected_improvement, propose
from service.scheduler.policy.searching.curve_model import CurveModel, Posterior, Rows
from service.scheduler.policy.searching.encoding import Array, Encoding
from service.scheduler.policy.searching.equivalent_trials import resolution
from tests.support.service.searching.spaces import CONDITIONAL

ENCODING = Encoding(CONDITIONAL)
KNOWN = ENCODING.snap(np.random.default_rng(0).random((20, ENCODING.num_dimensions)))


def posterior() -> Posterior:
    """Of a plane: the larger the fourth parameter, the better."""
    return CurveModel(ENCODING).condition(KNOWN, Rows(np.arange(20), np.zeros(20), 4 * KNOWN[:, 3]))


@pytest.mark.parametrize("mean", [-8.0, -5.1, -4.9, 0.0, 2.0])
def test_expected_improvement_is_the_integral_it_stands_for(mean: float) -> None:
    from scipy.integrate import quad  # a fifth of a second that every process of a run would pay

    def integrand(value: float) -> float:
        return (value - 1.0) * math.exp(-0.5 * (value - mean) ** 2) / math.sqrt(2 * math.pi)

    exact, _ = quad(integrand, 1.0, 20.0, epsabs=0.0, epsrel=1e-8)
    found = log_expected_improvement(np.array([mean]), np.array([1.0]), 1.0)[0]
    # Six deviations below, the tail is taken as phi / z^2: 8% off at most.
    assert found == pytest.approx(math.log(exact), abs=0.09)


def test_the_proposal_lies_where_the_model_expects_most() -> None:
    found = propose(
        posterior(),
        ENCODING,
        known=KNOWN,
        means=4 * KNOWN[:, 3],
        incumbent=float(4 * KNOWN[:, 3].max()),
        resolution=0.0,
        is_tried=lambda _: False,
        rng=np.random.default_rng(0),
    )
    assert found[3] > 0.9
    np.testing.assert_allclose(ENCODING.snap(found[None])[0], found)


def test_a_proposal_is_new_if_any_candidate_is() -> None:
    def found(is_tried: Callable[[Array], bool]) -> Array:
        return propose(
            posterior(),
            ENCODING,
            known=KNOWN,
            means=4 * KNOWN[:, 3],
            incumbent=float(4 * KNOWN[:, 3].max()),
            resolution=0.0,
            is_tried=is_tried,
            rng=np.random.default_rng(0),
        )

    best, second = found(lambda _: False), found(lambda vector: bool(vector[3] > 0.95))
    assert best[3] > 0.95 >= second[3] > 0.8
    np.testing.assert_array_equal(found(lambda _: True), best)


def test_a_proposal_keeps_the_resolution_from_known_configs() -> None:
    model = posterior()
    for apart in (0.1, 0.4):
        found = propose(
            model,
            ENCODING,
            known=KNOWN,
            means=4 * KNOWN[:, 3],
            incumbent=1.0,
            resolution=apart,
            is_tried=lambda _: False,
            rng=np.random.default_rng(0),
        )
        assert model.distances(found[None], KNOWN).min() > apart


def test_the_resolution_is_how_far_apart_twins_lie() -> None:
    model = posterior()
    beginnings = [(0.0, float(index)) for index in range(20)]
    assert resolution(beginnings, KNOWN, model) == 0.0
    beginnings[7] = beginnings[2]
    assert resolution(beginnings, KNOWN, model) == pytest.approx(model.distances(KNOWN[[2]], KNOWN[[7]])[0, 0])
    assert resolution([(1.0, 1.0), (1.0, 1.0), None], KNOWN[:3], model) == 0.0
