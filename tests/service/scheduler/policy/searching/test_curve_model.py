"""The Gaussian process over partial curves."""

from __future__ import annotations

import numpy as np
import pytest

from search_spaces import Categorical, Float, SearchSpace
from service.scheduler.policy.searching.curve_model import KNOWN_LENGTHS, CurveModel, Rows
from service.scheduler.policy.searching.encoding import Encoding
from tests.support.service.searching.spaces import CONDITIONAL

ENCODING = Encoding(CONDITIONAL)


def configs(number: int, seed: int = 0) -> np.ndarray:
    return ENCODING.snap(np.random.default_rng(seed).random((number, ENCODING.num_dimensions)))


def test_gradient_of_the_fit_is_that_of_its_loss() -> None:
    rng = np.random.default_rng(1)
    rows = Rows(np.r_[np.arange(12), [1, 3, 3]], np.r_[np.ones(12), [0.0, 0.0, 0.5]], rng.normal(size=15))
    model, features = CurveModel(ENCODING), ENCODING.features(configs(12))
    squares = ENCODING.squares(features)
    theta = model._theta + 0.1 * rng.normal(size=len(model._theta))
    _, gradient = model._loss(theta, features, squares, rows)
    step = 1e-5
    numeric = [
        (
            model._loss(theta + step * unit, features, squares, rows)[0]
            - model._loss(theta - step * unit, features, squares, rows)[0]
        )
        / (2 * step)
        for unit in np.eye(len(theta))
    ]
    np.testing.assert_allclose(gradient, numeric, atol=1e-5)


def test_the_mean_alone_is_that_with_a_deviation_and_the_weights_are_its_weights() -> None:
    vectors, asked = configs(10), configs(3, seed=1)
    rows = Rows(np.arange(10), np.zeros(10), np.random.default_rng(1).normal(size=10))
    posterior = CurveModel(ENCODING).condition(vectors, rows)
    mean, _ = posterior.final(asked)
    np.testing.assert_allclose(posterior.expected(asked), mean)
    np.testing.assert_allclose([posterior.weights(vector) @ rows.target for vector in asked], mean)


def test_a_row_with_noise_of_its_own_says_less_and_one_with_much_says_nothing() -> None:
    vectors = configs(10)
    rows = Rows(np.arange(10), np.zeros(10), np.r_[5.0, np.zeros(9)])
    model = CurveModel(ENCODING)
    noises = [np.r_[variance, np.zeros(9)] for variance in (0.0, 1.0, 1e9)]
    told = [model.condition(vectors, rows, added_noise=noise).expected(vectors[:1])[0] for noise in noises]
    others = Rows(np.arange(1, 10), np.zeros(9), np.zeros(9))
    without = model.condition(vectors, others).expected(vectors[:1])[0]
    assert told[0] > told[1] + 0.5 > told[2]
    assert told[2] == pytest.approx(without, abs=1e-4)


def test_a_model_goes_on_from_the_hyperparameters_of_another_one() -> None:
    vectors = configs(10)
    rows = Rows(np.arange(10), np.zeros(10), 3 * vectors[:, 3])
    model = CurveModel(ENCODING)
    model.fit(vectors, rows)
    other = CurveModel(ENCODING, hyperparameters=model.hyperparameters)
    asked = configs(3, seed=1)
    first, second = (one.condition(vectors, rows).expected(asked) for one in (model, other))
    np.testing.assert_array_equal(first, second)


def test_searches_with_functions_of_their_own_share_length_scales_and_no_noise() -> None:
    """Fitted as one function, what sets them apart passes for noise of each config."""
    vectors = configs(24)
    searches = [(vectors, Rows(np.arange(24), np.zeros(24), sign * 3 * vectors[:, 3])) for sign in (1.0, -1.0)]
    alone, together, as_one = (CurveModel(ENCODING) for _ in range(3))
    alone.fit(*searches[0])
    together.fit_together(searches)
    targets = np.concatenate([rows.target for _, rows in searches])
    as_one.fit(np.concatenate([vectors, vectors]), Rows(np.arange(48), np.zeros(48), targets))
    own = 2 * ENCODING.num_dimensions + 1  # the deviation of what is a config's alone
    assert alone.hyperparameters[own] < np.log(0.3)
    assert together.hyperparameters[own] < np.log(0.3) < as_one.hyperparameters[own]


def test_ends_of_finished_configs_are_known_and_of_unfinished_ones_uncertain() -> None:
    vectors = configs(10)
    finals = 3 * vectors[:, 3]
    early = finals - 1.0
    rows = Rows(np.r_[np.arange(10), np.arange(5)], np.r_[np.ones(10), np.zeros(5)], np.r_[early, finals[:5]])
    model = CurveModel(ENCODING)
    model.fit(vectors, rows)
    mean, deviation = model.condition(vectors, rows).final_of_known()
    np.testing.assert_allclose(mean[:5], finals[:5], atol=0.1)
    # The gap that the finished ones showed is expected of the others.
    np.testing.assert_allclose(mean[5:], finals[5:], atol=0.5)
    assert deviation[:5].max() < deviation[5:].min()


def test_the_error_of_an_end_is_that_of_the_model_to_which_it_was_not_shown() -> None:
    vectors = configs(10)
    rows = Rows(np.r_[np.arange(10), 3], np.r_[np.ones(10), 0.0], np.random.default_rng(4).normal(size=11))
    model = CurveModel(ENCODING)
    unshown = Rows(rows.config[:10], rows.distance[:10], rows.target[:10])
    expected, _ = model.condition(vectors, unshown).final_of_known()
    posterior = model.condition(vectors, rows)
    np.testing.assert_allclose(posterior.errors_left_out([10]), [rows.target[10] - expected[3]])
    assert posterior.errors_left_out([]).shape == (0,)


def test_a_gap_that_depends_on_the_config_is_learnt() -> None:
    """Early values rank the configs in the wrong order; the finished ones show it."""
    rng = np.random.default_rng(2)
    vectors = configs(40, seed=3)
    finals = 2 * vectors[:, 3]
    early = -2 * vectors[:, 3] + 0.01 * rng.normal(size=40)
    rows = Rows(np.r_[np.arange(40), np.arange(12)], np.r_[np.ones(40), np.zeros(12)], np.r_[early, finals[:12]])
    model = CurveModel(ENCODING)
    model.fit(vectors, rows)
    mean, _ = model.condition(vectors, rows).final(vectors[12:])
    assert np.corrcoef(mean, finals[12:])[0, 1] > 0.9


def test_observing_the_first_rung_shifts_what_is_not_known_yet() -> None:
    vectors = configs(8)
    rows = Rows(np.arange(8), np.ones(8), vectors[:, 3])
    posterior = CurveModel(ENCODING).condition(vectors, rows)
    far = ENCODING.snap(1.0 - vectors[:1])[0]
    assert posterior.shift_by_rung(far) > 2 * posterior.shift_by_rung(vectors[0]) > 0


def test_a_difference_is_surer_than_the_two_values_and_turns_with_them() -> None:
    vectors = configs(12)
    rows = Rows(np.arange(12), np.zeros(12), vectors[:, 3])
    model = CurveModel(ENCODING)
    model.fit(vectors, rows)
    posterior, (one, other) = model.condition(vectors, rows), configs(2, seed=9)
    mean, deviation = posterior.difference(one, other)
    means, deviations = posterior.final(np.array([one, other]))
    np.testing.assert_allclose(mean, means[0] - means[1])
    assert 0 < deviation < np.hypot(*deviations)
    np.testing.assert_allclose(posterior.difference(other, one), (-mean, deviation))
    assert posterior.difference(one, one)[1] < 1e-4


def test_a_value_says_less_of_another_branch_than_of_another_choice() -> None:
    space = SearchSpace(
        "shampoo",
        (
            Categorical("grafting", ("adam", "sgd")),
            Categorical("schedule.decay", ("cosine", "linear", "wsd")),
            Float("schedule.decay_fraction", 0.1, 0.5, when={"schedule.decay": ("wsd",)}),
        ),
    )
    encoding = Encoding(space)
    measured, of_choice, of_branch = (
        encoding.encode({"grafting": grafting, "schedule.decay": decay})
        for grafting, decay in (("adam", "cosine"), ("sgd", "cosine"), ("adam", "linear"))
    )
    posterior = CurveModel(encoding).condition(measured[None], Rows(np.array([0]), np.zeros(1), np.ones(1)))
    mean, deviation = posterior.final(np.stack([of_choice, of_branch]))
    assert deviation[1] > 1.1 * deviation[0]
    assert mean[1] < mean[0]


def test_a_known_length_scale_is_the_same_in_a_range_of_another_width() -> None:
    """Half a decade of a learning rate is as much in a range of two decades as in one of four."""
    alike = []
    for high in (1e-2, 1.0):
        encoding = Encoding(SearchSpace("adamw", (Float("lr", 1e-4, high, scale="log"),)))
        vectors = np.array([encoding.encode({"lr": rate}) for rate in (1e-3, 10**-2.5)])
        rows = Rows(np.array([0]), np.zeros(1), np.ones(1))
        mean, _ = CurveModel(encoding, {"lr": (0.5, 0.4)}).condition(vectors[:1], rows).final(vectors)
        alike.append(mean[1] / mean[0])
    assert alike[0] == pytest.approx(alike[1], rel=1e-3)
    assert alike[0] < 0.95


@pytest.mark.parametrize(
    "parameter",
    [Float("lr", 1e-4, 1e-1), Float("workload.dropout", 1e-4, 1e-1, scale="log")],
    ids=["another scale", "another name"],
)
def test_nothing_is_known_of_the_length_scale_of_another_name_or_scale(parameter: Float) -> None:
    encoding = Encoding(SearchSpace("adamw", (parameter,)))
    vectors = np.array([[0.2], [0.8]])
    rows = Rows(np.array([0]), np.zeros(1), np.ones(1))
    unknown, known = (
        CurveModel(encoding, lengths).condition(vectors[:1], rows).final(vectors)[0]
        for lengths in (None, KNOWN_LENGTHS)
    )
    np.testing.assert_array_equal(known, unknown)
