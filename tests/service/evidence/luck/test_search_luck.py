"""The finds of repeated searches, and which config is in truth the best: the models, against simulated searches."""

from __future__ import annotations

import dataclasses
import math
import random
import statistics

import pytest

from search_spaces import preset
from service.domain import Direction
from service.evidence.comparison import student_t
from service.evidence.luck.best_probability import best_probabilities
from service.evidence.luck.search_luck import interval_of_searches
from service.evidence.luck.searched_side import SearchedSide, TriedTrial, point_of
from service.evidence.luck.true_means import NoNoise

MIN, MAX = Direction.MINIMIZE, Direction.MAXIMIZE
TOP_K, NUM_CHOOSING, NUM_COMPARING = 2, 2, 4
NUM_DRAWS = 200
"""Enough to tell; a job takes more."""


def trial(number: int, *values: float, point: tuple[float, ...] | None = None, completed: bool = True) -> TriedTrial:
    """A trial far from all others, measured at steps 1, 2, ..."""
    curve = list(enumerate(values, start=1))
    return TriedTrial(number, point or (10.0 * number,), curve, has_completed=completed)


def searched(means: list[float], noise: float, rng: random.Random) -> tuple[SearchedSide, list[float]]:
    """A search that tried configs of these means, and the chosen one's values with the comparing seeds."""
    found = [rng.gauss(mean, noise) for mean in means]
    best = sorted(range(len(means)), key=found.__getitem__)[:TOP_K]
    repeats = {number: [rng.gauss(means[number], noise) for _ in range(NUM_CHOOSING)] for number in best}
    chosen = min(repeats, key=lambda number: statistics.fmean(repeats[number]))
    compared = [rng.gauss(means[chosen], noise) for _ in range(NUM_COMPARING)]
    repeats[chosen] += compared
    trials = [trial(number, value) for number, value in enumerate(found)]
    return SearchedSide(trials, repeats, chosen=chosen, top_k=TOP_K, num_choosing=NUM_CHOOSING), compared


def negated(side: SearchedSide) -> SearchedSide:
    trials = [dataclasses.replace(own, curve=[(step, -v) for step, v in own.curve]) for own in side.trials]
    return dataclasses.replace(
        side, trials=trials, repeats={number: [-v for v in own] for number, own in side.repeats.items()}
    )


def interval_of(
    search: SearchedSide, baseline: SearchedSide, differences: list[float], *, direction: Direction = MIN
) -> tuple[float, float]:
    mean, error = statistics.fmean(differences), statistics.stdev(differences) / math.sqrt(len(differences))
    reach = student_t.quantile(0.975, len(differences) - 1) * error
    return interval_of_searches(
        differences, (mean - reach, mean + reach), search, baseline, direction, num_draws=NUM_DRAWS
    )


def seeds_interval(differences: list[float]) -> tuple[float, float]:
    mean, error = statistics.fmean(differences), statistics.stdev(differences) / math.sqrt(len(differences))
    reach = student_t.quantile(0.975, len(differences) - 1) * error
    return mean - reach, mean + reach


def drawn_search(
    rng: random.Random, num_trials: int, *, noise: float = 0.05
) -> tuple[SearchedSide, list[float], float]:
    """A random search, the chosen config's values with the comparing seeds, and its true mean."""
    means = [rng.random() ** 0.5 for _ in range(num_trials)]
    side, compared = searched(means, noise, rng)
    return side, compared, means[side.chosen]


@pytest.mark.parametrize("name", ["shampoo", "adamw", "sgd", "family"])
def test_points_are_the_features_of_the_search(name: str) -> None:
    from service.scheduler.policy.searching.encoding import Encoding

    space, rng = preset(name), random.Random(0)
    encoding = Encoding(space)
    for _ in range(20):
        values = space.sample(rng)
        expected = encoding.features(encoding.encode(values)[None])[0]
        assert point_of(space, values) == pytest.approx(tuple(expected), abs=1e-9)


def test_what_was_repeated_must_have_completed() -> None:
    with pytest.raises(ValueError, match=r"chosen 1 of repeated \[1\] of completed \[0\]"):
        SearchedSide([trial(0, 1.0), trial(1, 1.0, completed=False)], {1: [0.0]}, chosen=1, top_k=1, num_choosing=0)


def test_with_one_new_seed_each_nothing_is_said() -> None:
    side = SearchedSide([trial(0, 1.0), trial(1, 2.0)], {0: [1.1], 1: [1.2]}, chosen=0, top_k=2, num_choosing=1)
    with pytest.raises(NoNoise, match="two new seeds"):
        best_probabilities(side, MIN)


def test_probabilities_tell_what_is_clear_from_what_is_not() -> None:
    trials = [trial(0, 1.0), trial(1, 1.01), trial(2, 3.0), trial(3, 5.0)]
    repeats = {0: [1.0, 1.2, 1.1, 0.9], 1: [1.1, 1.0], 2: [3.1, 2.9]}
    side = SearchedSide(trials, repeats, chosen=0, top_k=3, num_choosing=2)
    probabilities = best_probabilities(side, MIN)
    assert sum(probabilities.values()) == pytest.approx(1.0)
    assert probabilities[2] < 0.01
    assert 0.2 < probabilities[0] < 0.8
    assert best_probabilities(negated(side), MAX) == probabilities == best_probabilities(side, MIN)


def test_what_is_said_to_be_the_best_with_some_probability_is_it_as_often() -> None:
    rng = random.Random(0)
    said: list[tuple[float, bool]] = []
    for _ in range(100):
        means = [rng.gauss(0.0, 1.0) for _ in range(8)]
        side, _ = searched(means, 1.0, rng)
        best = min(side.repeats, key=means.__getitem__)
        probabilities = best_probabilities(side, MIN, num_draws=NUM_DRAWS)
        said += [(probability, number == best) for number, probability in probabilities.items()]
    for low, high in ((0.0, 0.3), (0.3, 0.7), (0.7, 1.01)):
        own = [one for one in said if low <= one[0] < high]
        assert len(own) > 40
        # Three standard errors of a share of so many.
        assert statistics.fmean(is_best for _, is_best in own) == pytest.approx(
            statistics.fmean(probability for probability, _ in own), abs=1.5 / math.sqrt(len(own))
        )


def test_the_interval_of_searches_holds_that_over_seeds_and_follows_the_values() -> None:
    (search, ours, _), (baseline, theirs, _) = (drawn_search(random.Random(seed), 8) for seed in (1, 2))
    differences = [other - own for own, other in zip(ours, theirs, strict=True)]
    low, high = interval_of(search, baseline, differences)
    assert interval_of(search, baseline, differences) == (low, high)
    assert low < statistics.fmean(differences) < high
    wide = (low - 1.0, high + 2.0)
    assert interval_of_searches(differences, wide, search, baseline, MIN, num_draws=NUM_DRAWS) == wide
    mirrored = interval_of(negated(search), negated(baseline), differences, direction=MAX)
    assert mirrored == pytest.approx((low, high))


def test_trials_near_each_other_tell_less_of_another_search() -> None:
    (search, ours, _), (baseline, theirs, _) = (drawn_search(random.Random(seed), 24) for seed in (1, 2))
    differences = [other - own for own, other in zip(ours, theirs, strict=True)]
    apart_low, apart_high = interval_of(search, baseline, differences)
    # The same values, but found in four places.
    trials = [dataclasses.replace(own, point=(10.0 * (own.number % 4),)) for own in search.trials]
    near_low, near_high = interval_of(dataclasses.replace(search, trials=trials), baseline, differences)
    assert near_high - near_low > 1.2 * (apart_high - apart_low)


@pytest.mark.slow
def test_the_interval_of_searches_holds_what_other_searches_find() -> None:
    rng = random.Random(1)
    pairs = [[drawn_search(rng, 16, noise=0.03) for _ in range(2)] for _ in range(400)]
    truths = [baseline[2] - search[2] for search, baseline in pairs]
    held: list[float] = []
    held_over_seeds: list[float] = []
    for (search, ours, _), (baseline, theirs, _) in pairs[:30]:
        differences = [other - own for own, other in zip(ours, theirs, strict=True)]
        for shares, (low, high) in (
            (held, interval_of(search, baseline, differences)),
            (held_over_seeds, seeds_interval(differences)),
        ):
            shares.append(statistics.fmean(low <= truth <= high for truth in truths))
    assert 0.9 <= statistics.fmean(held) <= 0.98
    assert statistics.fmean(held_over_seeds) < 0.5


def test_trials_of_equal_values_count_the_same_in_any_order() -> None:
    rng = random.Random(3)
    baseline, compared = searched([0.4, 0.5, 0.6], 0.05, rng)
    alike = [trial(number, 0.5, point=(place,)) for number, place in enumerate([0.0, 0.13, 0.26, 0.39])]
    side = SearchedSide(alike, {0: [0.5, 0.55, 0.45]}, chosen=0, top_k=1, num_choosing=0)
    other = dataclasses.replace(side, trials=[alike[index] for index in (1, 3, 0, 2)])
    assert interval_of(side, baseline, compared) == interval_of(other, baseline, compared)
