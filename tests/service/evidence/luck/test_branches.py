"""Which choice won of the parameter that a space branches by, and how sure that is."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Mapping, Sequence

import pytest

from search_spaces import FAMILY_PRESETS, Categorical, Parameter, Scalar, SearchSpace, preset
from service.domain import Direction, Objective, Phase, TrialState
from service.evidence.branches import Branches
from service.evidence.comparison.confirm import split_seeds
from service.evidence.finished_trial import FinishedTrial
from service.evidence.in_words.words import branches_words, evidence_lines
from service.evidence.luck.best_choice import choice_probabilities
from service.evidence.luck.job_branches import branches_of
from service.evidence.luck.searched_side import SearchedSide, TriedTrial
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


def only_members(space: SearchSpace, members: tuple[str, ...]) -> SearchSpace:
    """The space with two of its members, and what belongs to these."""
    parameters: list[Parameter] = []
    for parameter in space.parameters:
        when = {
            name: tuple(own for own in values if name != "preconditioner" or own in members)
            for name, values in parameter.when.items()
        }
        if parameter == space.member:
            assert isinstance(parameter, Categorical)
            parameters.append(dataclasses.replace(parameter, choices=members, default=None))
        elif all(when.values()) and "grafting" not in (*when, parameter.name):
            parameters.append(dataclasses.replace(parameter, when=when))
    return dataclasses.replace(space, parameters=tuple(parameters))


def choices_of(levels: Mapping[str, Sequence[float]]) -> dict[int, Scalar]:
    return dict(enumerate(choice for choice, own in levels.items() for _ in own))


def said(levels: Mapping[str, Sequence[float]], *, num_seeds: int = 4) -> dict[Scalar, float]:
    return said_of(searched(levels, num_seeds=num_seeds), choices_of(levels))


def said_of(
    side: SearchedSide, choices: Mapping[int, Scalar], direction: Direction = Direction.MINIMIZE
) -> dict[Scalar, float]:
    """The probabilities of the choices that were tried."""
    all_choices = list(dict.fromkeys(choices.values()))
    return choice_probabilities(side.trials, choices, direction, all_choices=all_choices, side=side)


def test_a_choice_that_is_far_ahead_is_the_best_almost_surely() -> None:
    found = said({"soap": [1.0 + 0.01 * n for n in range(20)], "kl": [3.0 + 0.01 * n for n in range(20)]})
    assert found["soap"] > 0.95
    assert sum(found.values()) == pytest.approx(1.0)


def test_of_choices_that_are_level_neither_is_sure() -> None:
    level = [1.0, 1.2, 1.4, 1.6, 1.8]
    assert 0.35 < said({"soap": level, "kl": level})["soap"] < 0.65


def test_equal_values_tell_no_choice_from_another() -> None:
    trials = [TriedTrial(number, (0.1 * number,), [(10, 1.0)], True) for number in range(4)]
    choices = dict(enumerate(("soap", "soap", "kl", "kl")))
    found = choice_probabilities(trials, choices, Direction.MINIMIZE, all_choices=("soap", "kl"))
    assert 0.4 < found["soap"] < 0.6


def test_of_few_trials_of_each_choice_little_is_said() -> None:
    """The best config tried is soap's beyond doubt, and what a search of kl finds is open."""
    values = [1.0, 1.5, 2.0, 2.5]
    few = said({"soap": values[:2], "kl": values[1:3]})
    many = said({"soap": values * 10, "kl": [value + 0.5 for value in values] * 10})
    assert 0.5 < few["soap"] < 0.8
    assert many["soap"] > few["soap"] + 0.1


@pytest.mark.parametrize("failed", [0, 6])
def test_of_choices_that_found_nothing_the_one_that_was_not_tried_is_the_likelier(failed: int) -> None:
    trials = [TriedTrial(number, (0.1 * number,), [(10, 1.0 + 0.1 * number)], True) for number in range(6)]
    trials += [TriedTrial(6 + n, (0.9,), [], has_completed=False, has_failed=True) for n in range(failed)]
    choices: dict[int, Scalar] = {trial.number: "soap" if trial.number < 6 else "kl" for trial in trials}
    found = choice_probabilities(trials, choices, Direction.MINIMIZE, all_choices=("soap", "kl", "spectral"))
    assert sum(found.values()) == pytest.approx(1.0)
    assert 0.05 < found["spectral"] < found["soap"]
    assert (found["kl"] < 0.5 * found["spectral"]) == bool(failed)


def test_what_new_seeds_say_of_the_best_config_counts() -> None:
    side = searched({"soap": [1.0, 1.5, 1.6, 1.7], "kl": [1.3, 1.5, 1.6, 1.7]})
    choices = choices_of({"soap": [1.0] * 4, "kl": [1.0] * 4})
    unlucky = dataclasses.replace(side, repeats={**side.repeats, 0: [1.6, 1.62, 1.59, 1.61]})
    assert said_of(unlucky, choices)["soap"] < said_of(side, choices)["soap"] - 0.05


def test_where_larger_is_better_the_same_is_said() -> None:
    levels = {"soap": [1.0, 1.2, 1.4, 1.5], "kl": [1.1, 1.3, 1.6, 1.8]}
    side = searched(levels)
    trials = [dataclasses.replace(own, curve=[(step, -v) for step, v in own.curve]) for own in side.trials]
    repeats = {number: [-value for value in own] for number, own in side.repeats.items()}
    mirrored = dataclasses.replace(side, trials=trials, repeats=repeats)
    assert said_of(mirrored, choices_of(levels), Direction.MAXIMIZE) == said_of(side, choices_of(levels))


def test_without_new_seeds_what_the_trials_reached_counts_by_itself() -> None:
    levels = {"soap": [1.0, 1.1], "kl": [1.4, 1.5]}
    assert 0.5 < said(levels, num_seeds=1)["soap"] < 0.9


@pytest.mark.parametrize("num_completed", [0, 1])
def test_of_too_few_values_nothing_is_said(num_completed: int) -> None:
    trials = [TriedTrial(n, (0.1 * n,), [(5, 1.0)] if n < num_completed else [], n < num_completed) for n in range(3)]
    choices: dict[int, Scalar] = dict.fromkeys(range(3), "soap")
    assert choice_probabilities(trials, choices, Direction.MINIMIZE, all_choices=("soap", "kl")) == {}


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
    known = {choice: own.probability_best_alone or 0.0 for choice, own in by_choice.items()}
    assert sum(known.values()) == pytest.approx(1.0)
    assert max(known, key=known.__getitem__) == "soap"
    words = branches_words(branches)
    assert not branches.is_decided
    assert words.startswith("Which preconditioner suits best is undecided; the recommended config is of soap. How")
    assert "searched alone with as many trials: soap about" in words
    assert words in evidence_lines(found.evidence)
    assert recommendation_from_json(json.loads(json.dumps(found.to_json()))) == found


@pytest.mark.parametrize(("num_trials", "is_decided"), [(7, False), (40, True)])
def test_a_member_is_said_to_have_won_only_after_as_many_trials_as_a_verdict_takes(
    num_trials: int, is_decided: bool
) -> None:
    rng = random.Random(0)
    trials = []
    for number in range(num_trials):
        member = ("soap", "kl")[number % 2]
        parameters = {**FAMILY_PRESETS[member][0], **FAMILY_PRESETS[member][1].sample(rng)}
        value = 1.0 + 0.001 * number + (9.0 if member == "kl" else 0.0)
        trials.append(finished(number, Phase.SEARCH, [value], parameters))
    narrow = only_members(FAMILY, ("soap", "kl"))
    branches = branches_of(trials, 0, narrow, None, Direction.MINIMIZE, metric=METRIC)
    assert branches is not None
    assert branches.is_decided == is_decided
    assert branches_words(branches).startswith("soap won" if is_decided else "Which preconditioner suits best is")


def test_of_stored_evidence_without_probabilities_the_values_are_told() -> None:
    stored = json.loads(json.dumps(a_job().to_json()))
    for choice in stored["evidence"]["branches"]["choices"]:
        choice["probability_best"] = choice.pop("probability_best_alone")
    del stored["evidence"]["branches"]["is_decided"]
    branches = branches_in(recommendation_from_json(stored))
    assert [own.probability_best_alone for own in branches.choices] == [None] * 4
    assert "is undecided" in branches_words(branches)
    assert "the best values found are shampoo 1.999, soap" in branches_words(branches)


def test_stored_evidence_without_branches_has_none() -> None:
    stored = json.loads(json.dumps(a_job().to_json()))
    del stored["evidence"]["branches"]
    assert recommendation_from_json(stored).evidence.branches is None
