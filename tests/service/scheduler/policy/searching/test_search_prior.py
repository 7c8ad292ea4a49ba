"""A search that is told of good configs of models like its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from search_spaces import Float, Scalar, SearchSpace, preset
from service.domain import Direction, TrialState
from service.scheduler.policy.searching.auto import AutoSearch
from service.scheduler.policy.searching.encoding import Encoding
from service.scheduler.policy.searching.phase_search import New, TrialOutcome
from service.scheduler.policy.searching.search_prior import (
    LENGTHS_IN_TABLES,
    UNIFORM,
    KnownConfig,
    SearchPrior,
)

SPACE = SearchSpace(
    "adamw",
    (
        Float("lr", 1e-4, 1e-1, scale="log", default=1e-3),
        Float("weight_decay", 1e-4, 1.0, scale="log"),
        Float("eps", 1e-10, 1e-6, scale="log"),
    ),
)
BEST: dict[str, Scalar] = {"lr": 0.03, "weight_decay": 0.2, "eps": 1e-9}
BAD: dict[str, Scalar] = {"lr": 1.2e-4, "weight_decay": 0.9, "eps": 9e-7}


def loss(parameters: Mapping[str, Scalar]) -> float:
    """A bowl around `BEST`."""
    encoding = Encoding(SPACE)
    return 1 + float(((encoding.encode(parameters) - encoding.encode(BEST)) ** 2).sum())


def searched(
    num_trials: int,
    *known: KnownConfig,
    seed: int = 0,
    lengths: Mapping[str, float] = LENGTHS_IN_TABLES,
    objective: Callable[[Mapping[str, Scalar]], float] = loss,
) -> list[Mapping[str, Scalar]]:
    """The configs that a search of whole trainings tries."""
    search = AutoSearch(
        SPACE, direction=Direction.MINIMIZE, max_steps=10, pauses=False, seed=seed, known=known, lengths=lengths
    )
    tried = []
    for number in range(num_trials):
        chosen = search.choose(number, may_start=True)
        assert isinstance(chosen, New)
        value = objective(chosen.parameters)
        search.report(number, 10, value)
        search.finish(number, TrialOutcome(TrialState.COMPLETED, None, (value,), ((10, value),)))
        tried.append(chosen.parameters)
    return tried


def test_known_configs_are_tried_first() -> None:
    tried = searched(3, KnownConfig(BEST, 1.0), KnownConfig(BAD, 2.0))
    assert tried[:2] == [BEST, BAD]
    without = searched(3)
    assert without[0] == SPACE.defaults()
    assert BEST not in without


def test_a_known_config_that_was_begun_with_all_its_digits_is_not_tried_again() -> None:
    exact: dict[str, Scalar] = {"lr": 0.0312345, "weight_decay": 0.2123456, "eps": 1e-9}
    search = AutoSearch(
        SPACE, direction=Direction.MINIMIZE, max_steps=10, known=[KnownConfig(exact, 1.0), KnownConfig(BEST, 2.0)]
    )
    search.begin(0, exact)
    chosen = search.choose(1, may_start=True)
    assert isinstance(chosen, New)
    assert chosen.parameters == BEST


@pytest.mark.parametrize("seed", range(3))
def test_a_good_prior_is_ahead_from_the_first_trials_on(seed: int) -> None:
    near: dict[str, Scalar] = {**BEST, "lr": 0.015}
    known, unknown = searched(3, KnownConfig(near, 2.0), seed=seed), searched(8, seed=seed)
    assert min(map(loss, known)) < min(map(loss, unknown))


@pytest.mark.parametrize("lengths", [LENGTHS_IN_TABLES, dict.fromkeys(BEST, 20.0)])
def test_misleading_configs_and_length_scales_are_overridden(lengths: Mapping[str, float]) -> None:
    searches = [searched(16, KnownConfig(BAD, 0.0), seed=seed, lengths=lengths) for seed in range(12)]
    lost = [(min(map(loss, tried)) - 1) / (loss(SPACE.defaults()) - 1) for tried in searches]
    assert np.mean(lost) < 0.1


def test_the_density_is_wider_the_farther_the_model_and_bounded_below() -> None:
    encoding = Encoding(SPACE)
    near, far = (SearchPrior([KnownConfig(BEST, apart)], SPACE, encoding) for apart in (0.0, 5.0))
    beside = encoding.encode({**BEST, "lr": 0.01})[None]
    assert near.log_density(encoding.encode(BEST)[None]) == pytest.approx(0.0)
    assert near.log_density(beside) < far.log_density(beside) < 0
    everywhere = np.random.default_rng(0).random((100, 3))
    assert near.log_density(everywhere).min() >= np.log(UNIFORM)


def test_evidence_takes_the_weight_away() -> None:
    prior = SearchPrior([KnownConfig(BEST, 0.0)], SPACE, Encoding(SPACE))
    means = np.array([0.0, 1.0, 2.0])
    weights = [prior.weight(np.array([1.5]), means, num_measured=count) for count in (4, 8, 40)]
    assert weights == sorted(weights, reverse=True)
    assert weights[-1] > 0
    assert prior.weight(np.array([0.5]), means, num_measured=4) == 0


def test_the_length_scales_of_tables_are_those_of_presets_parameters() -> None:
    names = {parameter.name for one in ("shampoo", "shampoo-sgd") for parameter in preset(one).parameters}
    assert LENGTHS_IN_TABLES.keys() <= names


def test_beside_known_configs_a_search_first_varies_what_is_said_to_matter() -> None:
    near = KnownConfig({**BEST, "lr": 0.004}, 3.0)

    def by_rate(parameters: Mapping[str, Scalar]) -> float:
        encoding = Encoding(SPACE)
        return 1 + 100 * float(encoding.encode(parameters)[0] - encoding.encode(BEST)[0]) ** 2

    def reached(**lengths: float) -> float:
        tried = (searched(10, near, objective=by_rate, seed=seed, lengths=lengths) for seed in range(12))
        return float(np.mean([min(map(by_rate, one)) for one in tried]))

    assert reached(lr=1.1, weight_decay=21.0, eps=22.0) < reached(lr=21.0, weight_decay=1.1, eps=1.1)
