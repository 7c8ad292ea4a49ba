"""Vectors of a search space."""

from __future__ import annotations

import random

import numpy as np
import pytest

from search_spaces import SearchSpace, preset
from service.evidence.luck.searched_side import INACTIVE
from service.scheduler.policy.searching.encoding import Encoding
from tests.support.service.searching.spaces import CONDITIONAL

SPACES = pytest.mark.parametrize("space", [CONDITIONAL, preset("family")], ids=["conditional", "family"])


@SPACES
def test_an_assignment_survives_its_vector(space: SearchSpace) -> None:
    encoding, rng = Encoding(space), random.Random(0)
    for _ in range(100):
        values = space.sample(rng)
        assert encoding.decode(encoding.encode(values)) == values


def test_parameters_of_one_range_under_several_conditions_share_a_position() -> None:
    family = preset("family")
    encoding = Encoding(family)
    soap = family.defaults({"preconditioner": "soap", "lr": 0.01})
    spectral = family.defaults({"preconditioner": "spectral", "lr": 0.01})
    differing = np.flatnonzero(encoding.encode(soap) != encoding.encode(spectral))
    named = [family.parameters[family.dimensions()[index][0]].name for index in differing]
    assert named == ["preconditioner", "precondition_frequency"]  # which spectral does not have


@SPACES
def test_snapped_vectors_are_those_of_the_assignments_they_decode_to(space: SearchSpace) -> None:
    encoding = Encoding(space)
    snapped = encoding.snap(np.random.default_rng(0).uniform(-0.1, 1.1, (200, encoding.num_dimensions)))
    decoded = [encoding.decode(vector) for vector in snapped]
    for values in decoded:
        space.check(values)
    # Floats are rounded to four digits on the way.
    np.testing.assert_allclose(snapped, [encoding.encode(values) for values in decoded], atol=2e-3)


def test_inactive_parameters_make_no_difference() -> None:
    encoding = Encoding(CONDITIONAL)
    vectors = np.random.default_rng(0).random((1, encoding.num_dimensions)).repeat(2, axis=0)
    vectors[:, 0] = 0.1  # adam: the second lr is inactive
    vectors[:, 2] = [0.2, 0.9]
    snapped = encoding.snap(vectors)
    assert (snapped[:, 2] == INACTIVE).all()
    np.testing.assert_array_equal(snapped[0], snapped[1])


def test_choices_are_equally_far_from_each_other() -> None:
    encoding = Encoding(CONDITIONAL)
    vectors = np.full((3, encoding.num_dimensions), 0.1)
    vectors[:, 6] = [0.1, 0.4, 0.6]  # the third, wsd, opens a parameter
    features = encoding.features(encoding.snap(vectors))
    decay = features[:, encoding.parameter_of_feature == 6]
    distances = ((decay[:, None] - decay) ** 2).sum(axis=2)
    assert distances[0, 1] == pytest.approx(0.5)
    np.testing.assert_allclose(
        distances, 0.0 + distances[0, 1] * (vectors[:, 6][:, None] // 0.334 != vectors[:, 6] // 0.334)
    )


@pytest.mark.parametrize("skip", [0, 1, 5])
def test_sobol_points_are_scipys_from_any_place_on(skip: int) -> None:
    from scipy.stats import qmc  # half a second that every process of a run would pay

    encoding = Encoding(CONDITIONAL)
    expected = encoding.snap(qmc.Sobol(encoding.num_dimensions, rng=np.random.default_rng(7)).random(8))
    np.testing.assert_array_equal(encoding.sobol(8 - skip, seed=7, skip=skip), expected[skip:])
