"""Which choice won of the parameter that a space branches by, and how sure that is."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Mapping, Sequence

import pytest

from search_spaces import FAMILY_PRESETS, Scalar, preset
from service.domain import Direction, Objective, Phase, TrialState
from service.evidence.branches import Branches
from service.evidence.comparison.confirm import split_seeds
from service.evidence.finished_trial import FinishedTrial
from service.evidence.in_words.words import branches_words, evidence_lines
from service.evidence.luck.best_probability import branch_probabilities
from service.evidence.luck.searched_side import SearchedSide, TriedTrial
from service.evidence.luck.true_means import NoNoise
from service.evidence.recommend import recommend
from service.evidence.recommended import RecommendedConfig, recommendation_from_json
from tests.service.evidence.luck.test_job_luck import METRIC, finished

SEEDS = [1, 2, 3, 4, 5]
FAMILY = preset("family")


def searched(levels: Mapping[str, Sequence[float]], *, noise: float = 0.02, num_seeds: int = 4) -> SearchedSide:
    """A search of which each choice had trials with these means, all completed; its best two were trained again."""
    rng = random.Random(1)
    trials = [
        TriedTrial(number, (rng.random(), rng.random(), rng.random()), [(10, mean + rng.gauss(0.0, noise))], True)
        for number, mean in enumerate(mean for own in levels.values() for mean in own)
    ]
    best = sorted(trials, key=lambda trial: trial.curve[-1][1])[:2]
    means = [mean for own in levels.values() for mean in own]
    repeats = {one.number: [means[one.number] + rng.gauss(0.0, noise) for _ in range(num_seeds)] for one in best}
    return SearchedSide(trials, repeats, chosen=best[0].number, top_k=2, num_choosing=1)


def choices_of(levels: Mapping[str, Sequence[float]]) -> dict[int, Scalar]:
    return dict(enumerate(choice for choice, own in levels.items() for _ in own))


def said(levels: Mapping[str, Sequence[float]], *, num_seeds: int = 4) -> dict[Scalar, float]:
    side = searched(levels, num_seeds=num_seeds)
    return branch_probabilities(side, Direction.MINIMIZE, choices_of(levels))


def test_a_choice_that_is_far_ahead_is_the_best_almost_surely() -> None:
    found = said({"soap": [1.0, 1.1, 1.2, 1.3, 1.4], "kl": [3.0, 3.1, 3.2, 3.3, 3.4]})
    assert found["soap"] > 0.95
    assert sum(found.values()) == pytest.approx(1.0)


def test_of_choices_that_are_level_neither_is_sure() -> None:
    found = said({"soap": [1.0, 1.2, 1.4, 1.6, 1.8], "kl": [1.0, 1.2, 1.4, 1.6, 1.8]})
    assert 0.05 < found["soap"] < 0.95


def test_what_is_open_of_a_pruned_trial_counts() -> None:
    levels = {"soap": [1.0, 1.1, 1.2, 1.3], "kl": [1.3]}
    side = searched(levels)
    rng = random.Random(2)

    def begun(trial: TriedTrial) -> TriedTrial:
        """With a value before its last one, from which curves go on differently."""
        return dataclasses.replace(trial, curve=[(5, trial.curve[-1][1] + rng.uniform(0.0, 1.0)), *trial.curve])

    trials = [begun(trial) for trial in side.trials]
    last = trials[-1]
    pruned = dataclasses.replace(last, curve=[(5, last.curve[-1][1] + 0.5)], has_completed=False)
    chances = [
        branch_probabilities(dataclasses.replace(side, trials=own), Direction.MINIMIZE, choices_of(levels))["kl"]
        for own in (trials, [*trials[:-1], pruned])
    ]
    assert chances[0] < chances[1]


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_pruned_trial_of_which_little_is_known_is_seldom_the_best(sign: float) -> None:
    """Its end lies around the mean of the others, as far off as they do: of normal draws, a tenth would be the best."""
    curves = [(1.5, 1.0), (1.7, 1.6), (1.6, 1.9)]
    trials = [TriedTrial(n, (0.1 * n,), [(5, sign * a), (10, sign * b)], True) for n, (a, b) in enumerate(curves)]
    trials.append(TriedTrial(3, (0.9,), [(5, sign * 1.7)], False))
    side = SearchedSide(trials, {0: [sign * 1.0, sign * 1.01]}, chosen=0, top_k=1, num_choosing=0)
    direction = Direction.MINIMIZE if sign > 0.0 else Direction.MAXIMIZE
    assert 0.005 < branch_probabilities(side, direction, {0: "soap", 1: "soap", 2: "soap", 3: "kl"})["kl"] < 0.08


def test_without_two_new_seeds_nothing_is_said() -> None:
    with pytest.raises(NoNoise):
        said({"soap": [1.0, 1.1], "kl": [1.2, 1.3]}, num_seeds=1)


def a_job(*, num_seeds: int = len(SEEDS)) -> RecommendedConfig:
    """A search of the family in which soap is ahead, kl was pruned, and spectral not tried."""
    rng = random.Random(0)
    trials: list[FinishedTrial] = []
    for member, level in (("soap", 1.0), ("shampoo", 2.0)):
        for index in range(5):
            parameters = {**FAMILY_PRESETS[member][0], **FAMILY_PRESETS[member][1].sample(rng)}
            value = level + 0.1 * index + rng.gauss(0.0, 0.02)
            trials.append(finished(len(trials), Phase.SEARCH, [value + 1.0, value], parameters))
    pruned = dict(FAMILY.defaults({"preconditioner": "kl"}))
    trials.append(finished(len(trials), Phase.SEARCH, [4.0], pruned, state=TrialState.PRUNED, value=None))
    choosing, comparing = split_seeds(SEEDS, top_k=2)
    for source, seeds in ((0, [*choosing, *comparing]), (1, choosing)):
        for seed in seeds[:num_seeds]:
            value = 1.0 + 0.1 * source + rng.gauss(0.0, 0.02)
            repeated = dict(trials[source].parameters)
            trials.append(
                finished(
                    len(trials), Phase.CONFIRMATION, [value], repeated, seed=seed, side=Phase.SEARCH, confirms=source
                )
            )
    found = recommend(
        trials,
        objectives=[Objective(METRIC, Direction.MINIMIZE)],
        seeds=SEEDS,
        top_k=2,
        num_baselines=0,
        spaces={Phase.SEARCH: FAMILY},
    )
    assert found is not None
    return found


def branches_in(found: RecommendedConfig) -> Branches:
    assert found.evidence.branches is not None
    return found.evidence.branches


def test_a_recommendation_says_which_member_won_and_how_sure_that_is() -> None:
    found = a_job()
    branches = branches_in(found)
    assert (branches.parameter, branches.winner) == ("preconditioner", "soap")
    by_choice = {own.choice: own for own in branches.choices}
    assert list(by_choice) == ["shampoo", "soap", "kl", "spectral"]
    assert {choice: own.num_tried for choice, own in by_choice.items()} == {
        "shampoo": 5,
        "soap": 5,
        "kl": 1,
        "spectral": 0,
    }
    assert (by_choice["soap"].number, by_choice["kl"].number, by_choice["spectral"].value) == (0, None, None)
    assert (by_choice["soap"].probability_best or 0.0) > 0.9
    assert by_choice["spectral"].probability_best is None
    words = branches_words(branches)
    assert words.startswith("soap won as preconditioner. How probably the best config tried is one of each: soap")
    assert words.endswith("spectral unknown.")
    assert words in evidence_lines(found.evidence)
    assert recommendation_from_json(json.loads(json.dumps(found.to_json()))) == found


def test_without_new_seeds_the_winner_is_named_and_no_probability() -> None:
    branches = branches_in(a_job(num_seeds=1))
    assert branches.winner == "soap"
    assert [own.probability_best for own in branches.choices] == [None] * 4
    assert "only new seeds tell" in branches_words(branches)


def test_stored_evidence_without_branches_has_none() -> None:
    stored = json.loads(json.dumps(a_job().to_json()))
    del stored["evidence"]["branches"]
    assert recommendation_from_json(stored).evidence.branches is None
