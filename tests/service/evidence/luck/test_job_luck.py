"""A job's trials as the models of luck see them, and what its evidence says of luck."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Sequence
from typing import Any

import pytest

from search_spaces import SearchSpace
from search_spaces.parameters import Categorical, Float
from service.domain import Direction, FailureReason, Objective, Phase, Side, TrialState, side_of
from service.evidence.comparison.confirm import confirm, split_seeds
from service.evidence.finished_trial import FinishedTrial
from service.evidence.in_words.wording import chance
from service.evidence.in_words.words import answer_of, evidence_lines
from service.evidence.luck.job_luck import sides_of
from service.evidence.luck.searched_side import TriedTrial, point_of
from service.evidence.recommend import recommend
from service.evidence.recommended import RecommendedConfig, recommendation_from_json
from service.evidence.types import Verdict
from trainers.config import OptimizerConfig, TrialConfig
from trainers.stored_config import StoredConfig

METRIC = "validation_loss"
SPACES: dict[Side, SearchSpace] = {
    Phase.SEARCH: SearchSpace("shampoo", (Float("lr", 1e-4, 0.1, "log"), Categorical("grafting", ("adam", "sgd")))),
    "adamw": SearchSpace("adamw", (Float("lr", 1e-4, 0.1, "log"),)),
}
NUM_TRIALS, TOP_K, SEEDS = 9, 2, [1, 2, 3, 4, 5]
LEVEL = {Phase.SEARCH: 1.0, Phase.BASELINE: 1.3}
"""Of the objective where the learning rate is right."""


def finished(
    number: int, phase: Phase, values: Sequence[float | None], parameters: dict[str, Any], **fields: Any
) -> FinishedTrial:
    """A completed trial that was measured at steps 10, 20, ..., unless `fields` say otherwise."""
    seed, side = fields.pop("seed", 0), fields.pop("side", phase)
    config = TrialConfig(
        workload="digits-mlp",
        optimizer=OptimizerConfig("shampoo" if side is Phase.SEARCH else "adamw", parameters),
        num_steps=20,
        evaluate_every=10,
        batch_size=8,
        seed=seed,
    )
    content: dict[str, Any] = {"state": TrialState.COMPLETED, "reason": None, "value": values[-1], **fields}
    curve = [(10 * i, 1.0, {METRIC: value}) for i, value in enumerate(values, start=1)]
    return FinishedTrial(
        number, phase, config=StoredConfig.of(config.to_json()), curve=curve, parameters=parameters, **content
    )


def a_job(*, sign: float = 1.0, noise: float = 0.02) -> list[FinishedTrial]:
    """A job with the default confirmation, in which every third trial was pruned."""
    rng = random.Random(0)
    trials: list[FinishedTrial] = []
    for phase in (Phase.SEARCH, Phase.BASELINE):
        for index in range(NUM_TRIALS):
            parameters = SPACES[side_of(phase, "adamw")].sample(rng)
            value = LEVEL[phase] + 0.1 * index + rng.gauss(0.0, noise)
            is_pruned = index % 3 == 2
            ending = {"state": TrialState.PRUNED, "value": None} if is_pruned else {}
            values = [sign * (value + 1.0), *([] if is_pruned else [sign * value])]
            trials.append(finished(len(trials), phase, values, dict(parameters), **ending))
    choosing, comparing = split_seeds(SEEDS, top_k=TOP_K)
    for source, seeds in ((0, [*choosing, *comparing]), (1, choosing), (9, [*choosing, *comparing]), (10, choosing)):
        own = trials[source]
        index = source % NUM_TRIALS
        for seed in seeds:
            value = sign * (LEVEL[own.phase] + 0.1 * index + rng.gauss(0.0, noise))
            trials.append(
                finished(
                    len(trials),
                    Phase.CONFIRMATION,
                    [value],
                    dict(own.parameters),
                    seed=seed,
                    side=own.phase,
                    confirms=source,
                )
            )
    return trials


def answered(
    trials: Sequence[FinishedTrial],
    *,
    directions: Sequence[Direction] = (Direction.MINIMIZE,),
    spaces: dict[Side, SearchSpace] | None = None,
    top_k: int = TOP_K,
) -> RecommendedConfig:
    objectives = [Objective(METRIC if not i else "step_seconds", own) for i, own in enumerate(directions)]
    found = recommend(
        trials, objectives=objectives, seeds=SEEDS, top_k=top_k, spaces=SPACES if spaces is None else spaces
    )
    assert found is not None
    return found


def test_the_sides_of_a_job_are_its_trials_and_their_repeats() -> None:
    cut_off = finished(90, Phase.SEARCH, [2.0], {"lr": 0.01}, state=TrialState.CANCELLED, value=None)
    never_begun = dataclasses.replace(cut_off, number=93, curve=())
    lost = dataclasses.replace(cut_off, number=91, state=TrialState.FAILED, reason=FailureReason.LOST)
    diverged = dataclasses.replace(lost, number=92, reason=FailureReason.DIVERGED)
    trials = [*a_job(), cut_off, lost, diverged, never_begun]
    choosing, comparing = split_seeds(SEEDS, top_k=TOP_K)
    result = confirm(trials, Direction.MINIMIZE, choosing=choosing, comparing=comparing)
    assert result is not None
    sides = sides_of(result, trials, SPACES, metric=METRIC, top_k=TOP_K, num_choosing=len(choosing))
    side = sides[Phase.SEARCH]
    by_number = {trial.number: trial for trial in side.trials}
    assert [*by_number] == [*range(NUM_TRIALS), 90, 92]
    assert (by_number[92].has_completed, by_number[92].has_failed) == (False, True)
    pruned, value = by_number[2], trials[2].curve[0][2][METRIC]
    assert value is not None
    assert pruned == TriedTrial(2, point_of(SPACES[Phase.SEARCH], trials[2].parameters), [(10 * 8, value)], False)
    assert by_number[0].has_completed
    assert {number: len(own) for number, own in side.repeats.items()} == {0: 5, 1: 1}
    assert (side.chosen, side.top_k, side.num_choosing) == (0, TOP_K, 1)
    assert sides[Phase.BASELINE].chosen == 9


def test_the_evidence_says_how_far_the_luck_of_a_search_goes_and_which_config_is_the_best() -> None:
    found = answered(a_job())
    evidence, result = found.evidence, found.evidence.confirmation
    assert result is not None
    assert result.improvement is not None
    assert evidence.search_interval is not None
    assert evidence.search_interval[0] < result.improvement[0] < result.improvement[1] <= evidence.search_interval[1]
    chances = [config.probability_best for config in result.candidates]
    assert all(one is not None for one in chances)
    assert sum(one or 0.0 for one in chances) == pytest.approx(1.0)
    assert (chances[0] or 0.0) > 0.9
    lines = evidence_lines(evidence)
    assert "Which of the configs trained again is the best, by the seeds and the search: that of trial 0 " in " ".join(
        lines
    )
    said = answer_of(evidence)
    assert said is not None
    assert "With the luck of a search of this size" in said.detail
    assert recommendation_from_json(json.loads(json.dumps(found.to_json()))) == found


@pytest.mark.parametrize(
    ("of_recommended", "of_other", "is_told"),
    [(0.3, 0.7, True), (0.48, 0.52, False), (0.46, 0.54, False), (0.7, 0.3, False)],
)
def test_a_recommended_config_that_is_less_probably_the_best_is_told_with_the_reason(
    of_recommended: float, of_other: float, is_told: bool
) -> None:
    evidence = answered(a_job()).evidence
    assert evidence.confirmation is not None
    candidates = [
        dataclasses.replace(config, probability_best=probability)
        for config, probability in zip(evidence.confirmation.candidates, (of_recommended, of_other), strict=True)
    ]
    changed = dataclasses.replace(
        evidence, confirmation=dataclasses.replace(evidence.confirmation, candidates=candidates)
    )
    told = [line for line in evidence_lines(changed) if "is more probably the best" in line]
    assert bool(told) == is_told
    if told:
        assert told[0].startswith(
            "The config of trial 1 is more probably the best (about 70%) than the recommended one (about 30%)"
        )


def test_what_is_to_be_large_gives_the_same_luck() -> None:
    smaller, larger = (
        answered(a_job(sign=sign), directions=[direction]).evidence
        for sign, direction in ((1.0, Direction.MINIMIZE), (-1.0, Direction.MAXIMIZE))
    )
    assert smaller.search_interval == pytest.approx(larger.search_interval)
    assert smaller.confirmation is not None
    assert larger.confirmation is not None
    assert [config.probability_best for config in smaller.confirmation.configs] == [
        config.probability_best for config in larger.confirmation.configs
    ]


def test_with_several_objectives_the_first_has_its_luck() -> None:
    evidence = answered(a_job(), directions=[Direction.MINIMIZE, Direction.MINIMIZE]).evidence
    assert evidence.search_interval is not None


def test_without_noise_nothing_raises() -> None:
    assert answered(a_job(noise=0.0)).evidence.search_interval is not None


def test_of_stored_evidence_without_probabilities_none_are_told() -> None:
    found = answered(a_job())
    stored = json.loads(json.dumps(found.to_json()))
    for config in [*stored["evidence"]["confirmation"]["candidates"], stored["evidence"]["confirmation"]["baseline"]]:
        del config["probability_best"]
    del stored["evidence"]["search_interval"]
    evidence = recommendation_from_json(stored).evidence
    assert evidence.search_interval is None
    assert not any("Which of the configs" in line for line in evidence_lines(evidence))


def _repeats(trials: Sequence[FinishedTrial], *sources: int, num: int = 9) -> list[FinishedTrial]:
    own = [trial for trial in trials if trial.confirms in sources and trial.config.seed <= num]
    return [*(trial for trial in trials if trial.confirms is None), *own]


def _failed(trials: Sequence[FinishedTrial], *sources: int) -> list[FinishedTrial]:
    return [
        dataclasses.replace(trial, state=TrialState.FAILED, reason=FailureReason.DIVERGED, value=None)
        if trial.confirms in sources
        else trial
        for trial in trials
    ]


@pytest.mark.parametrize(
    ("case", "known"),
    [
        ("no baseline", True),
        ("no spaces", False),
        ("few trials", True),
        ("all of the search's failed", False),
        ("all failed", False),
        ("one failed", True),
        ("one seed", False),
        ("nothing was repeated", False),
        ("the chosen one alone", False),
    ],
)
def test_where_less_is_known_less_is_said(case: str, known: bool) -> None:
    """`known`: of the search's configs, how probably one is the best."""
    trials, spaces = a_job(), SPACES
    match case:
        case "no baseline":
            gone = {trial.number for trial in trials if trial.phase is Phase.BASELINE}
            trials = [trial for trial in trials if not gone & {trial.number, trial.confirms}]
        case "no spaces":
            spaces = {}
        case "few trials":
            trials = [trial for trial in trials if trial.number in (0, 1, 9, 10) or trial.confirms is not None]
        case "all of the search's failed":
            trials = _failed(trials, 0, 1)
        case "all failed":
            trials = _failed(trials, 0, 1, 9, 10)
        case "one failed":
            trials = _failed(trials, 10)
        case "one seed":
            trials = _repeats(trials, 0, 1, 9, 10, num=1)
        case "nothing was repeated":
            trials = _repeats(trials)
        case "the chosen one alone":
            trials = _repeats(trials, 0, 9)
    evidence = answered(trials, spaces=spaces).evidence
    result = evidence.confirmation
    candidates = [] if result is None else result.candidates
    assert ([config.probability_best is not None for config in candidates[:1]] == [True]) == known
    is_compared = case in ("few trials", "one failed", "the chosen one alone")
    assert (evidence.search_interval is not None) == is_compared
    assert evidence.verdict is not Verdict.WORSE
    assert evidence_lines(evidence)


@pytest.mark.parametrize(
    ("probability", "said"),
    [
        (0.0, "less than 5%"),
        (0.05, "about 10%"),
        (0.32, "about 30%"),
        (0.68, "about 70%"),
        (0.95, "about 90%"),
        (1.0, "more than 95%"),
    ],
)
def test_a_probability_is_told_as_far_as_it_is_known(probability: float, said: str) -> None:
    assert chance(probability) == said
