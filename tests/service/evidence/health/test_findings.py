"""Findings about a job: each is made where it is true, and none where nothing is wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from search_spaces import SearchSpace
from search_spaces.parameters import Float
from service.domain import Direction, FailureReason, Phase, TrialState
from service.evidence.health.cards import BetterPreset, HealthKind, SearchedJob, SearchedTrial, Severity
from service.evidence.health.findings import health_of
from service.evidence.insights import DivergedBeyond, EarlyLate, ParameterInsight, SafeRange, SideInsights
from service.evidence.types import BaselineBest, Evidence
from tests.support.service.confirmed import recommendation_of

SPREAD = [0.30, 0.9, 0.8, 0.7, 0.6, 0.55, 0.5, 0.45, 0.48, 0.52, 0.61, 0.72, 0.63]
"""A search whose best came first."""
SPACE = SearchSpace("shampoo", (Float("lr", 1e-4, 1e-1, scale="log"),))
DIVERGED = "diverged: their loss was not finite or above max_loss, or another metric was not finite."


def searched(
    values: Sequence[float | None] = SPREAD, *, evidence: Evidence | None = None, **fields: Any
) -> SearchedJob:
    """A job whose search trials completed with these values, in this order; None: it diverged."""
    outcomes = [
        SearchedTrial(number, Phase.SEARCH, TrialState.FAILED, FailureReason.DIVERGED, None)
        if value is None
        else SearchedTrial(number, Phase.SEARCH, TrialState.COMPLETED, None, value)
        for number, value in enumerate(values)
    ]
    job = SearchedJob(Direction.MINIMIZE, outcomes, evidence=evidence)
    return dataclasses.replace(job, **fields)


def confirmed(ours: Sequence[float | None], theirs: Sequence[float | None]) -> Evidence:
    """Evidence with these values of the recommended config and the baseline's, by seed; both had as many trials."""
    evidence = recommendation_of({0: ours, 2: theirs}).evidence
    (baseline,) = evidence.baselines
    return dataclasses.replace(
        evidence, baselines=[dataclasses.replace(baseline, num_tried=evidence.num_tried[Phase.SEARCH])]
    )


HEALTHY = ([0.30, 0.31, 0.32], [0.40, 0.41, 0.42])


def kinds(job: SearchedJob) -> list[HealthKind]:
    return [card.kind for card in health_of(job)]


def test_nothing_is_said_where_nothing_is_wrong() -> None:
    assert health_of(searched(evidence=confirmed(*HEALTHY), spaces={Phase.SEARCH: SPACE})) == []
    assert health_of(SearchedJob(Direction.MINIMIZE, [], is_over=False, ended_by_budget=False)) == []


@pytest.mark.parametrize(
    ("theirs", "told"),
    [
        ([0.60, 0.61, 0.62], "did not reproduce: found with 0.4000, it has 0.6100 with 3 new seeds."),
        ([0.40, None, 0.41], "failed when it was trained again, with seed 2: failed (diverged)."),
        ([0.41, 0.42, 0.43], None),  # ordinary luck
        ([0.408, 0.408, 0.408], None),  # beyond the noise, and too little to matter
    ],
)
def test_a_baseline_that_did_not_reproduce(theirs: Sequence[float | None], told: str | None) -> None:
    cards = health_of(searched(evidence=confirmed([0.30, 0.31, 0.32], theirs)))
    found = [card for card in cards if card.kind is HealthKind.BASELINE_NOT_REPRODUCED]
    assert [card.sentence.removeprefix("The best config of AdamW (trial 2) ") for card in found] == (
        [told] if told else []
    )
    assert all(card.severity is Severity.WARNING and "budget_share" in card.advice for card in found)
    assert all("'Edit and clone' on its page" in card.advice for card in found)


@pytest.mark.parametrize(
    ("num_tried", "number", "seconds", "told"),
    [
        (5, 2, 100.0, "AdamW had 5 trials that did not fail, and so few hardly tune it"),
        (9, 2, 40.0, "AdamW had 9 trials in 40 s of training, the search 11 in 1 min 40 s"),
        (9, 2, 99.0, None),  # slow trials: it had the time
        (11, 2, 10.0, None),  # quick ones, and as many
        (0, None, 0.0, "no trial of AdamW completed"),
    ],
)
def test_a_baseline_that_was_hardly_tuned(num_tried: int, number: int | None, seconds: float, told: str | None) -> None:
    evidence = dataclasses.replace(
        confirmed(*HEALTHY),
        baselines=[BaselineBest("adamw", number, 0.4, 0, num_tried)],
        side_seconds={"search": 100.0, "adamw": seconds},
    )
    cards = [card for card in health_of(searched(evidence=evidence)) if card.kind is HealthKind.BASELINE_UNDERTUNED]
    assert [card.sentence for card in cards] == ([f"The baseline is under-tuned: {told}."] if told else [])


def test_a_metric_that_seeds_change_as_much_as_configs_do_is_noisy() -> None:
    noisy = confirmed([0.10, 0.60, 0.30], [0.41, 0.80, 0.35])
    (card,) = [card for card in health_of(searched(evidence=noisy)) if card.kind is HealthKind.NOISY_METRIC]
    assert card.sentence.startswith(
        "The metric is noisy: with another seed the same config differs by ± 0.25, and half of the search's "
        "completed trials lie within 0.30 of the best."
    )
    assert HealthKind.NOISY_METRIC not in kinds(searched(evidence=confirmed(*HEALTHY)))
    assert HealthKind.NOISY_METRIC not in kinds(searched(SPREAD[:5], evidence=noisy))  # too few to tell


def test_best_values_at_the_edge_are_named_with_their_bounds() -> None:
    spaces = {Phase.SEARCH.value: SPACE, "adamw": SPACE}
    baseline = [SearchedTrial(number, Phase.BASELINE, TrialState.COMPLETED, None, 0.5) for number in range(20, 28)]
    job = searched(spaces=spaces, best_parameters={Phase.SEARCH.value: {"lr": 0.099}, "adamw": {"lr": 1e-4}})
    job = dataclasses.replace(job, outcomes=[*job.outcomes, *baseline])
    (card,) = health_of(job)
    assert card.kind is HealthKind.AT_THE_EDGE
    assert card.sentence == (
        "A best value lies at the edge of its range: the best config of the search has lr = 0.099 by the upper bound "
        "0.1; the best config of AdamW has lr = 0.0001 by the lower bound 0.0001."
    )
    assert (
        "'Try a variation' on the page of a trial of that side (shampoo-tuner try JOB --beyond-bounds --set lr=...; "
        "shampoo-tuner try JOB --beyond-bounds --phase baseline --optimizer adamw --set lr=...)"
    ) in card.advice
    stopped = [dataclasses.replace(trial, state=TrialState.CANCELLED) for trial in baseline[1:]]
    (card,) = health_of(dataclasses.replace(job, outcomes=[*searched().outcomes, baseline[0], *stopped]))
    assert "AdamW" not in card.sentence, "of which all but one were stopped"
    inside = {Phase.SEARCH.value: {"lr": 0.01}}
    assert kinds(dataclasses.replace(job, best_parameters=inside)) == []
    for is_over in (False, True):
        short = searched(SPREAD[:7], spaces=spaces, best_parameters=job.best_parameters, is_over=is_over)
        assert HealthKind.AT_THE_EDGE not in kinds(short), "where the best of so few lies is luck"


def test_many_diverged_trials_are_counted() -> None:
    (card,) = health_of(searched([*SPREAD[:6], None, None, None]))
    assert (card.kind, card.severity) == (HealthKind.MANY_DIVERGED, Severity.HINT)
    assert card.sentence == f"3 of the search's 9 trials {DIVERGED}"
    assert kinds(searched([*SPREAD, None, None, None])) == []  # 3 of 16
    assert kinds(searched([0.3, None, None])) == []


def insights(*, early: float | None = None, beyond: DivergedBeyond | None = None) -> SideInsights:
    """Insights into a search of one parameter."""
    safe = SafeRange(1e-4, 0.01, 5, 0.5, diverged_above=beyond)
    return SideInsights(
        side=Phase.SEARCH.value,
        num_completed=6,
        num_pruned=0,
        num_diverged=3,
        num_left_out=0,
        num_sampled=9,
        parameters=[ParameterInsight("lr", "float", 9, safe_range=safe)],
        early_late_correlation=None if early is None else EarlyLate(0.15, 9, early, early - 0.3, early + 0.3),
    )


def test_many_diverged_trials_are_told_with_the_values_that_they_had_where_these_tell() -> None:
    job = searched([*SPREAD[:6], None, None, None], insights=insights(beyond=DivergedBeyond(0.031, 4, 3)))
    (card,) = health_of(job)
    assert card.sentence.endswith(f"{DIVERGED} With lr from 0.031 on, 3 of 4 did.")
    assert "narrow these ranges" in card.advice
    (card,) = health_of(dataclasses.replace(job, insights=insights()))
    assert card.sentence.endswith(DIVERGED)


def test_the_metric_that_was_not_finite_is_named() -> None:
    job = searched([*SPREAD[:6], None, None, None])
    *others, last = job.outcomes
    told = dataclasses.replace(last, divergence="diverged at step 40: word_errors is nan")
    (card,) = health_of(dataclasses.replace(job, outcomes=[*others, told]))
    assert card.sentence.endswith(f"{DIVERGED} One of them, trial 8, said: diverged at step 40: word_errors is nan.")


@pytest.mark.parametrize(("early", "is_told"), [(0.1, True), (-0.5, True), (0.3, False), (0.9, False), (None, False)])
def test_early_values_that_say_little_of_the_last_ones(early: float | None, is_told: bool) -> None:
    cards = health_of(searched(insights=insights(early=early)))
    assert [card.kind for card in cards] == ([HealthKind.EARLY_VALUES_MISLEAD] if is_told else [])
    assert all("'Retry' beside each (shampoo-tuner retry JOB NUMBER)" in card.advice for card in cards)
    assert all("after 15% of the training, the order of 9 completed trials" in card.sentence for card in cards)


def test_a_search_that_its_budget_ended_while_it_improved() -> None:
    improving = [0.9, 0.8, 0.7, 0.6, 0.55, 0.5, 0.45, 0.44, 0.43, 0.42, 0.36, 0.31]
    (card,) = health_of(searched(improving))
    assert "'Change budget', and resume it (shampoo-tuner budget JOB num_trials=N --resume)" in card.advice
    assert card.kind is HealthKind.STILL_IMPROVING
    assert card.sentence == (
        "The budget ended while the search was still improving: trials 9, 10 and 11, of the last quarter of its "
        "trials, found better values than all before, by 27.9%."
    )
    assert kinds(searched(improving, ended_by_budget=False)) == []
    assert kinds(searched([*improving[:-3], 0.429, 0.5, 0.6])) == []  # by less than matters
    assert kinds(searched(improving[-6:])) == []  # too few trials to say
    noisy = confirmed([0.10, 0.40, 0.70], [0.10, 0.60, 0.80])
    assert HealthKind.STILL_IMPROVING not in kinds(searched(improving, evidence=noisy))  # by less than a seed changes


def test_devices_that_trained_for_a_small_part_of_the_time_were_idle() -> None:
    (card,) = health_of(searched(training_seconds=600.0, elapsed_seconds=1000.0, parallel_trials=4))
    assert card.kind is HealthKind.DEVICES_IDLE
    assert card.sentence.startswith(
        "Devices were mostly idle: in 16 min 40 s with room for 4 trials at once, 15% of the time went into training"
    )
    assert kinds(searched(training_seconds=600.0, elapsed_seconds=1000.0)) == []
    assert kinds(searched(training_seconds=6.0, elapsed_seconds=100.0)) == []  # mostly start
    assert kinds(searched(elapsed_seconds=1000.0)) == []  # nothing is known


def test_warnings_come_first() -> None:
    job = searched([*SPREAD[:6], None, None, None], evidence=confirmed([0.30, 0.31, 0.32], [0.60, 0.61, 0.62]))
    assert kinds(job)[0] is HealthKind.BASELINE_NOT_REPRODUCED
    assert kinds(job)[-1] is HealthKind.MANY_DIVERGED


def test_another_preset_is_advised_if_it_was_clearly_better_on_models_like_this_one() -> None:
    better = BetterPreset("kl", "shampoo", 0.82, 14, 1.44)
    (card,) = health_of(searched(better_preset=better))
    assert (card.kind, card.severity) == (HealthKind.ANOTHER_PRESET, Severity.HINT)
    assert card.sentence == (
        "Another preset may suit the model better: on 14 tuned models near this one, the nearest 1.4 octaves away, the "
        "best trials of kl had 0.82 times the loss of those of shampoo, after equally many steps."
    )
    assert "shampoo-tuner clone JOB search_space=kl" in card.advice
    assert health_of(searched(better_preset=dataclasses.replace(better, loss_ratio=0.93))) == []
