"""Comparing configs over new seeds: which one wins, what the interval allows to say, and how often it is wrong."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence

import pytest

from search_spaces import SearchSpace
from search_spaces.parameters import Float
from service.domain import Direction, FailureReason, Objective, Phase, TrialState
from service.evidence.comparison.confirm import compare_over_seeds, confirm
from service.evidence.in_words.speed import ratio_words
from service.evidence.in_words.standing import standing_of
from service.evidence.in_words.words import answer_of, evidence_lines
from service.evidence.recommend import recommend
from service.evidence.recommended import recommendation_from_json
from service.evidence.types import MIN_TRIED, BaselineBest, EvidenceStatus, Verdict
from tests.support.service.caveats import sentences
from tests.support.service.confirmed import FOUND, METRIC, PRUNED, finished_trial, recommendation_of, trained_again


def test_the_best_of_several_baselines_is_compared_and_each_is_told_of() -> None:
    muon = [
        finished_trial(5, Phase.BASELINE, [0.9, 0.38], optimizer="muon"),
        finished_trial(50, Phase.CONFIRMATION, [0.8, 0.50], confirms=5, seed=1, optimizer="muon"),
        *(
            finished_trial(200 + index, Phase.BASELINE, [0.9], state=TrialState.PRUNED, value=None, optimizer="muon")
            for index in range(MIN_TRIED)
        ),
    ]
    repeated = trained_again({1: [0.33, 0.31, 0.32, 0.33], 2: [0.40, 0.42, 0.43, 0.44]})
    found = recommend(
        [*FOUND, *PRUNED, *muon, *repeated],
        objectives=[Objective(METRIC, Direction.MINIMIZE)],
        seeds=range(1, 5),
        top_k=1,
        num_baselines=2,
    )
    assert found is not None
    evidence = found.evidence
    assert evidence.baseline is not None
    assert (evidence.baseline.number, evidence.seeds, evidence.verdict) == (2, [2, 3, 4], Verdict.BETTER)
    assert evidence.baselines == [
        BaselineBest("adamw", 2, 0.40, 1, 2 + MIN_TRIED),
        BaselineBest("muon", 5, 0.50, 1, 1 + MIN_TRIED),
    ]
    lines = evidence_lines(evidence)
    assert any(line.startswith("Shampoo beats the best of AdamW and Muon by ") for line in lines)
    told = "AdamW stands for the baselines, by the values over the 1 new seed that chose: "
    assert told + "AdamW 0.4000 (trial 2); Muon 0.5000 (trial 5)." in lines
    assert recommendation_from_json(found.to_json()) == found


def test_a_baseline_with_few_trials_leaves_the_verdict_undecided() -> None:
    muon = finished_trial(5, Phase.BASELINE, [0.9, 0.70], optimizer="muon")
    found = recommend([*FOUND, *PRUNED, muon], objectives=[Objective(METRIC, Direction.MINIMIZE)], num_baselines=2)
    assert found is not None
    answer = answer_of(found.evidence)
    assert answer is not None
    assert answer.headline == "Undecided: too few trials to tell Shampoo from the best of AdamW and Muon"
    assert "10 of AdamW and 1 of Muon completed or were pruned" in answer.detail
    assert "The search had 11 trials and the baseline Muon 1, which favours the search." in sentences(
        found.evidence.caveats
    )


def test_some_seeds_choose_on_both_sides_and_the_others_compare() -> None:
    recommendation = recommendation_of(
        {1: [0.33], 0: [0.30, 0.31, 0.32, 0.33], 2: [0.46], 4: [0.40, 0.42, 0.43, 0.44]}, top_k=2
    )
    evidence = recommendation.evidence
    assert recommendation.config == {"lr": 0.1}
    assert evidence.best.number == 0
    assert evidence.best.value == pytest.approx(0.32)
    assert evidence.baseline is not None
    assert evidence.baseline.number == 4
    assert evidence.baseline.value == pytest.approx(0.43)
    assert (evidence.verdict, evidence.status) == (Verdict.BETTER, EvidenceStatus.CONFIRMED)
    assert evidence.improvement == pytest.approx(0.11 / 0.43)
    assert evidence.seeds == [2, 3, 4]
    result = evidence.confirmation
    assert result is not None
    assert result.choosing_seeds == [1]
    assert [config.number for config in result.configs] == [0, 1, 4, 2]
    first, second, *_ = result.candidates
    assert (first.found_value, first.choosing_mean, second.choosing_mean, second.mean) == (0.30, 0.30, 0.33, None)
    assert first.standard_deviation == pytest.approx(0.01)
    assert [(r.seed, r.number, r.value) for r in first.results[:2]] == [(1, 11, 0.30), (2, 12, 0.31)]
    assert sentences(evidence.caveats) == ["The search had 11 trials and the baseline 10, which favours the search."]
    assert evidence.num_trials["confirmation"] == {"completed": 10}


def test_the_luck_that_chose_a_config_does_not_count_for_it() -> None:
    evidence = recommendation_of(
        {1: [0.10, 0.41, 0.42, 0.43], 0: [0.30], 2: [0.40, 0.41, 0.42, 0.43]}, top_k=2
    ).evidence
    assert (evidence.best.number, evidence.verdict) == (1, Verdict.EQUAL)
    assert evidence.best.value == pytest.approx(0.42)


def test_a_choice_that_was_cut_off_leaves_the_best_found_ones() -> None:
    evidence = recommendation_of({1: [], 0: [0.30], 2: [0.46], 4: [0.40]}, top_k=2, num_seeds=7).evidence
    assert (evidence.best.number, evidence.status) == (0, EvidenceStatus.PROVISIONAL)
    assert sentences(evidence.caveats)[-1] == "The confirmation did not finish: 0 of 6 seeds were compared."


def test_each_seed_tells_when_the_baseline_was_reached_and_all_of_them_how_surely() -> None:
    reached = recommendation_of({0: [0.19, 0.20, 0.21], 2: [0.42, 0.42, 0.42]}).evidence.reached_baseline
    assert reached is not None
    assert (reached.step, reached.baseline_step) == (10, 20)
    assert (reached.step_ratio, reached.step_ratio_low, reached.step_ratio_high) == pytest.approx((2.0, 2.0, 2.0))
    assert ratio_words(125.0, 12.0, 1300.0, "as many steps") == "125× as many steps (12× to 1,300×)"
    assert ratio_words(2.0, 2.0, 2.0, "as many steps") == "2× as many steps (with every seed)"
    reached = recommendation_of({0: [0.20, 0.21, 0.40], 2: [0.42, 0.42, 0.42]}).evidence.reached_baseline
    assert reached is not None
    assert reached.step_ratio == pytest.approx(4 ** (1 / 3))
    assert reached.step_ratio_low is not None
    assert reached.step_ratio_low < 1.0
    assert reached.seconds_ratio == pytest.approx(reached.step_ratio)
    lines = evidence_lines(recommendation_of({0: [0.20, 0.21, 0.40], 2: [0.42, 0.42, 0.42]}).evidence)
    assert any(
        "at step 13 or before, after 1.3 s of training. The baseline was so at step 20, after 2.0 s of training: at "
        "least 1.6× as many steps (0.59× to 4.3×), at least 1.6× as much training time" in line
        for line in lines
    )
    assert recommendation_of({0: [0.20, 0.21, 0.43], 2: [0.42, 0.42, 0.42]}).evidence.reached_baseline is None


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [
        ([0.30, 0.31, 0.32], [0.40, 0.41, 0.42], Verdict.BETTER),
        ([0.40, 0.41, 0.42], [0.30, 0.31, 0.32], Verdict.WORSE),
        ([0.30, 0.50, 0.40], [0.45, 0.35, 0.44], Verdict.UNDECIDED),
        ([0.4000, 0.4100, 0.4200], [0.4002, 0.4101, 0.4203], Verdict.EQUAL),
        ([0.4, 0.4, 0.4], [0.4, 0.4, 0.4], Verdict.EQUAL),
        ([0.0, 0.0, 0.0], [0.0, 0.0, 0.0], Verdict.EQUAL),
        ([0.1, 0.11, 0.12], [0.0, 0.0, 0.0], Verdict.WORSE),
    ],
)
def test_the_verdict_is_what_the_interval_allows(
    ours: Sequence[float], theirs: Sequence[float], verdict: Verdict
) -> None:
    assert recommendation_of({0: ours, 2: theirs}).evidence.verdict is verdict


def test_a_metric_that_is_maximised_prefers_the_larger_mean() -> None:
    values = {1: [0.80], 0: [0.90, 0.90, 0.91, 0.92], 2: [0.70, 0.70, 0.72, 0.71]}
    evidence = recommendation_of(values, top_k=2, direction=Direction.MAXIMIZE).evidence
    assert (evidence.best.number, evidence.verdict) == (0, Verdict.BETTER)
    assert evidence.improvement == pytest.approx(0.2 / 0.71)


def test_the_interval_is_that_of_the_paired_t_test_where_that_holds_all_differences() -> None:
    from scipy import stats  # half a second that every process of a run would pay

    ours, theirs = [0.31, 0.36, 0.30, 0.33], [0.40, 0.42, 0.37, 0.44]
    trials = [*FOUND, *trained_again({0: ours, 2: theirs})]
    result = confirm(trials, Direction.MINIMIZE, choosing=[], comparing=[1, 2, 3, 4])
    assert result is not None
    interval = compare_over_seeds(result, Direction.MINIMIZE)
    assert interval is not None
    expected = stats.ttest_rel(theirs, ours).confidence_interval(0.95)
    assert interval.low == pytest.approx(expected.low)
    assert interval.high == pytest.approx(expected.high)
    assert interval.mean == pytest.approx(sum(theirs) / 4 - sum(ours) / 4)
    share = sum(theirs) / 4
    assert result.improvement_low == pytest.approx(expected.low / share)
    assert result.improvement_high == pytest.approx(expected.high / share)


def test_a_config_that_fails_with_a_new_seed_gives_way_on_both_sides() -> None:
    ours: dict[int, list[float | None]] = {1: [0.2, None], 0: [0.30, 0.30, 0.31, 0.32], 3: [None]}
    theirs: dict[int, list[float | None]] = {2: [0.40, 0.41, None], 4: [0.40, 0.41, 0.42, 0.43]}
    evidence = recommendation_of({**ours, **theirs}, top_k=2).evidence
    assert (evidence.best.number, evidence.verdict, evidence.status) == (0, Verdict.BETTER, EvidenceStatus.CONFIRMED)
    assert evidence.baseline is not None
    assert evidence.baseline.number == 4
    assert "The config of trial 1 failed with seed 2: failed (diverged)." in sentences(evidence.caveats)
    assert "The config of trial 2 failed with seed 3: failed (diverged)." in sentences(evidence.caveats)
    result = evidence.confirmation
    assert result is not None
    assert [(config.number, config.mean) for config in result.candidates] == [
        (0, pytest.approx(0.31)),
        (1, None),
        (3, None),
    ]


def test_a_baseline_that_fails_with_a_new_seed_leaves_the_comparison_open() -> None:
    evidence = recommendation_of({0: [0.30, 0.31, 0.32], 2: [0.41, None, 0.43]}).evidence
    assert (evidence.verdict, evidence.improvement, evidence.reached_baseline) == (Verdict.UNDECIDED, None, None)
    assert evidence.status is EvidenceStatus.CONFIRMED
    assert evidence.best.value == pytest.approx(0.31)
    assert evidence.seeds == [0]
    assert sentences(evidence.caveats)[-1] == "The config of trial 2 failed with seed 2: failed (diverged)."
    assert not any("one seed" in caveat for caveat in sentences(evidence.caveats))


def test_where_every_config_fails_the_searchs_best_is_given_refuted_and_without_a_verdict() -> None:
    evidence = recommendation_of({0: [None], 1: [0.3, None, None], 2: [0.41, 0.42, 0.43]}, top_k=2).evidence
    assert (evidence.best.number, evidence.best.value, evidence.verdict) == (1, 0.25, Verdict.UNDECIDED)
    assert evidence.status is EvidenceStatus.REFUTED
    assert "The config of trial 1 failed with seed 2, 3: failed (diverged)." in sentences(evidence.caveats)


def test_seeds_that_not_both_configs_completed_are_left_out() -> None:
    evidence = recommendation_of({0: [0.30, 0.31, 0.1], 2: [0.41, 0.42]}).evidence
    assert (evidence.best.number, evidence.seeds) == (0, [1, 2])
    assert evidence.best.value == pytest.approx(0.305)
    assert "The confirmation did not finish: 2 of 3 seeds were compared." in sentences(evidence.caveats)


def test_seeds_that_contradict_each_other_end_the_comparison_and_it_says_so() -> None:
    evidence = recommendation_of({0: [0.30, 0.50, 0.40], 2: [0.45, 0.35, 0.44]}, num_seeds=6).evidence
    assert (evidence.verdict, evidence.seeds) == (Verdict.UNDECIDED, [1, 2, 3])
    assert sentences(evidence.caveats)[-1].startswith(
        "The comparison stopped after 3 of 6 seeds: they contradict each other"
    )


@pytest.mark.parametrize(
    ("ours", "is_told"), [([0.3, 0.3, 0.3], True), ([0.3, 0.3, 0.300000001], False), ([0.3, 0.3, None], False)]
)
def test_seeds_that_change_nothing_are_told(ours: list[float | None], is_told: bool) -> None:
    evidence = recommendation_of({0: ours, 2: [0.4, 0.4, 0.4]}).evidence
    told = [
        caveat
        for caveat in sentences(evidence.caveats)
        if caveat.startswith("Every new seed gave the very same value: ")
    ]
    assert len(told) == is_told


def test_a_confirmation_that_hardly_began_changes_nothing_but_says_so() -> None:
    evidence = recommendation_of({1: [0.33], 2: [0.41]}, num_seeds=3).evidence
    assert (evidence.best.number, evidence.best.value, evidence.verdict) == (1, 0.25, Verdict.BETTER)
    assert evidence.status is EvidenceStatus.PROVISIONAL
    assert evidence.improvement == pytest.approx(0.375)
    assert evidence.seeds == [0]
    assert "one seed" in sentences(evidence.caveats)[0]
    assert sentences(evidence.caveats)[-1] == "The confirmation did not finish: 1 of 3 seeds were compared."
    assert "No config was trained again with new seeds" in sentences(recommendation_of({}).evidence.caveats)[-1]


@pytest.mark.parametrize(
    ("ours", "theirs", "status", "words"),
    [
        ([0.30, 0.31, 0.32], [0.40, 0.41, 0.42], EvidenceStatus.CONFIRMED,
         "Confirmed up to the noise: the config held its value with 3 new seeds"),
        ([0.30, 0.31, 0.32], [0.20, 0.21, 0.22], EvidenceStatus.REFUTED,
         "Refuted: it lost to the baseline with 3 new seeds"),
        ([0.40, 0.401, 0.402], [0.40, 0.401, 0.402], EvidenceStatus.REFUTED,
         "Refuted: with 3 new seeds it fell behind the value that it was found with"),  # 0.30
        ([0.30, 0.31, 0.32], [0.20, 0.31, 0.42], EvidenceStatus.CONFIRMED,
         "Confirmed up to the noise: the config held its value with 3 new seeds"),  # and the verdict is open
        ([0.40, 0.401, 0.402], [0.80, 0.81, 0.82], EvidenceStatus.CONFIRMED,
         "Confirmed against the baseline: with 3 new seeds it fell behind the value that it was found with, and beat "
         "the baseline"),  # 0.30
        ([0.30, None, 0.32], [0.40, 0.41, 0.42], EvidenceStatus.REFUTED, "Refuted: it failed with 3 new seeds"),
        ([], [], EvidenceStatus.PROVISIONAL, "Provisional: what one seed found, and not trained again"),
    ],
)  # fmt: skip
def test_a_config_is_refuted_that_failed_or_lost_or_was_luck(
    ours: Sequence[float | None], theirs: Sequence[float], status: EvidenceStatus, words: str
) -> None:
    recommendation = recommendation_of({0: ours, 2: theirs})
    assert recommendation.evidence.status is status
    standing = standing_of(recommendation.evidence)
    assert standing.sentence == words
    # Lists and the first line of the evidence say no more than that.
    heading, _, _ = words.partition(":")
    assert standing.short == f"config {heading.lower()}"
    assert evidence_lines(recommendation.evidence)[0].startswith(f"{heading}: Shampoo has validation_loss ")
    stored = json.loads(json.dumps(recommendation.to_json()))
    assert stored["evidence"].pop("status") == status.value
    assert recommendation_from_json(stored) == recommendation  # as one stored before there was a status


def test_configs_that_confirm_alike_are_both_shown_with_what_speaks_for_either() -> None:
    cliff = finished_trial(90, Phase.SEARCH, [None], state=TrialState.FAILED, reason=FailureReason.DIVERGED, value=None)
    cliff = dataclasses.replace(cliff, config=dataclasses.replace(cliff.config, arguments={"lr": 0.2}))
    repeated = [
        dataclasses.replace(
            trial, curve=[(20, 2.0, {METRIC: trial.value, "step_seconds": 0.1 if trial.confirms else 0.2})]
        )
        for trial in trained_again({0: [0.30, 0.29, 0.32, 0.31], 1: [0.31], 3: [0.80], 2: [0.41, 0.41, 0.42, 0.43]})
    ]
    space = SearchSpace("shampoo", (Float("lr", 1e-4, 0.1, "log"),))
    values = {0: {"lr": 0.1}, 1: {"lr": 0.05}}
    searched = [dataclasses.replace(trial, parameters=values.get(trial.number, {})) for trial in FOUND]
    found = recommend(
        [*searched, *PRUNED, cliff, *repeated],
        objectives=[Objective(METRIC, Direction.MINIMIZE)],
        seeds=[1, 2, 3, 4],
        top_k=3,
        spaces={Phase.SEARCH: space},
    )
    assert found is not None
    (alike,) = found.evidence.alternatives
    assert (alike.number, alike.mean, alike.recommended_mean) == (1, 0.31, 0.30)
    assert alike.speaks_for_recommended == []
    words = next(line for line in evidence_lines(found.evidence) if "cannot tell the config" in line)
    assert words == (
        "New seeds cannot tell the config of trial 1 from the recommended one: with those that choose, it had 0.3100 "
        "and the recommended one 0.3000, no farther apart than noise. In its favour: 50% less time per step; farther "
        "from the cliff: a learning rate 4 times its own diverged, and of the other 2 times; no value at the edge of "
        "its range, where the other has lr."
    )


def test_without_a_baseline_the_best_mean_is_recommended() -> None:
    found = [trial for trial in FOUND if trial.phase is Phase.SEARCH]
    trials = [*found, *trained_again({1: [0.33], 0: [0.30, 0.31, 0.32]})]
    recommendation = recommend(trials, objectives=[Objective(METRIC, Direction.MINIMIZE)], seeds=[1, 2, 3], top_k=2)
    assert recommendation is not None
    evidence = recommendation.evidence
    assert (evidence.best.number, evidence.verdict, evidence.improvement) == (0, Verdict.NO_BASELINE, None)
    assert evidence.seeds == [2, 3]
    assert evidence.status is EvidenceStatus.CONFIRMED
    assert not any("one seed" in caveat for caveat in sentences(evidence.caveats))


@pytest.mark.parametrize("value", [math.nan, math.inf, None])
def test_a_completed_trial_without_a_finite_value_counts_as_failed(value: float | None) -> None:
    trials = [*FOUND, *trained_again({0: [0.3, 0.3], 1: [0.3, 0.3]})]
    trials.append(finished_trial(90, Phase.CONFIRMATION, [value], confirms=1, seed=3))
    result = confirm(trials, Direction.MINIMIZE, choosing=[1], comparing=[2, 3])
    assert result is not None
    assert [config.has_failed for config in result.candidates] == [False, True]
