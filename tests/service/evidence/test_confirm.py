"""Comparing configs over new seeds: which one wins, what the interval allows to say, and how often it is wrong."""

from __future__ import annotations

import ast
import json
import math
import random
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from service.domain import Direction, FailureReason, Objective, Phase, TrialState
from service.evidence.confirm import compare_over_seeds, confirm, mean_curve
from service.evidence.recommend import recommend
from service.evidence.snippet import python_snippet
from service.evidence.types import (
    ConfirmedConfig,
    FinishedTrial,
    RecommendedConfig,
    SeedResult,
    Verdict,
    recommendation_from_json,
)
from service.evidence.words import answer_of, evidence_lines
from trainers.config import OptimizerConfig, OptimizerName, TrialConfig

METRIC = "validation_loss"
SEEDS = (1, 2, 3)


def _trial(
    number: int,
    phase: Phase,
    values: Sequence[float | None],
    *,
    confirms: int | None = None,
    seed: int = 0,
    **fields: Any,
) -> FinishedTrial:
    """A trial measured at steps 10, 20, ..., whose last value is its objective."""
    optimizer: OptimizerName = fields.pop("optimizer", "adamw" if phase is Phase.BASELINE else "shampoo")
    config = TrialConfig(
        workload="digits-mlp",
        optimizer=OptimizerConfig(optimizer, {"lr": 0.1 / (1 + number)}),
        num_steps=40,
        evaluate_every=10,
        batch_size=128,
        seed=seed,
    )
    curve = [(10 * i, 1.0 * i, {METRIC: value}) for i, value in enumerate(values, start=1)]
    content: dict[str, Any] = {"state": TrialState.COMPLETED, "reason": None, "value": values[-1], **fields}
    return FinishedTrial(number, phase, config=config.to_json(), curve=curve, confirms=confirms, **content)


FOUND = [
    _trial(0, Phase.SEARCH, [0.9, 0.30]),
    _trial(1, Phase.SEARCH, [0.9, 0.25]),
    _trial(2, Phase.BASELINE, [0.9, 0.40]),
    _trial(3, Phase.SEARCH, [0.9, 0.80]),
]


def _repeated(values: Mapping[int, Sequence[float | None]]) -> list[FinishedTrial]:
    """Confirmation trials: of each found trial, the value with each seed; None: it diverged."""
    trials: list[FinishedTrial] = []
    for source, of_seeds in values.items():
        for seed, value in enumerate(of_seeds, start=1):
            ending: dict[str, Any] = {}
            if value is None:
                ending = {"state": TrialState.FAILED, "reason": FailureReason.DIVERGED}
            optimizer = "adamw" if FOUND[source].phase is Phase.BASELINE else "shampoo"
            curve = [None] if value is None else [2 * value, value]
            trials.append(
                _trial(
                    10 + len(trials),
                    Phase.CONFIRMATION,
                    curve,
                    confirms=source,
                    seed=seed,
                    optimizer=optimizer,
                    **ending,
                )
            )
    return trials


def _recommend(
    values: Mapping[int, Sequence[float | None]], *, direction: Direction = Direction.MINIMIZE
) -> RecommendedConfig:
    trials = [*FOUND, *_repeated(values)]
    recommendation = recommend(trials, objectives=[Objective(METRIC, direction)], num_planned=4, num_seeds=3)
    assert recommendation is not None
    return recommendation


def test_the_best_mean_over_new_seeds_wins_and_not_the_luckiest_trial_of_the_search() -> None:
    recommendation = _recommend({1: [0.33, 0.34, 0.35], 0: [0.30, 0.31, 0.32], 2: [0.41, 0.42, 0.43]})
    evidence = recommendation.evidence
    assert recommendation.config == {"lr": 0.1}
    assert evidence.best.number == 0
    assert evidence.best.value == pytest.approx(0.31)
    assert evidence.baseline is not None
    assert evidence.baseline.number == 2
    assert evidence.baseline.value == pytest.approx(0.42)
    assert evidence.verdict is Verdict.BETTER
    assert evidence.improvement == pytest.approx(0.11 / 0.42)
    assert evidence.seeds == [1, 2, 3]
    result = evidence.confirmation
    assert result is not None
    assert [config.number for config in result.candidates] == [0, 1]
    first = result.candidates[0]
    assert first.found_value == 0.30
    assert first.mean == pytest.approx(0.31)
    assert first.standard_deviation == pytest.approx(0.01)
    assert [(r.seed, r.number, r.value) for r in first.results] == [(1, 13, 0.30), (2, 14, 0.31), (3, 15, 0.32)]
    assert evidence.caveats == ["The search had 3 trials and the baseline 1, which favours the search."]
    assert evidence.num_trials["confirmation"] == {"completed": 9}


def test_the_mean_curve_tells_when_the_baseline_was_reached() -> None:
    reached = _recommend({0: [0.20, 0.21, 0.22], 2: [0.42, 0.42, 0.42]}).evidence.reached_baseline
    assert reached is not None
    assert (reached.step, reached.baseline_step, reached.step_ratio) == (10, 20, 2.0)
    curve = mean_curve(_repeated({0: [0.2, 0.4, None]}), METRIC, [1, 2])
    assert [(step, seconds) for step, seconds, _ in curve] == [(10, 1.0), (20, 2.0)]
    assert [list(metrics) for _, _, metrics in curve] == [[METRIC]] * 2
    assert [metrics[METRIC] for _, _, metrics in curve] == pytest.approx([0.6, 0.3])
    assert mean_curve([], METRIC, [1, 2]) == []


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
    assert _recommend({0: ours, 2: theirs}).evidence.verdict is verdict


def test_a_metric_that_is_maximised_prefers_the_larger_mean() -> None:
    values = {1: [0.80, 0.81, 0.82], 0: [0.90, 0.91, 0.92], 2: [0.70, 0.72, 0.71]}
    evidence = _recommend(values, direction=Direction.MAXIMIZE).evidence
    assert (evidence.best.number, evidence.verdict) == (0, Verdict.BETTER)
    assert evidence.improvement == pytest.approx(0.2 / 0.71)


def test_with_one_candidate_the_interval_is_that_of_the_paired_t_test() -> None:
    from scipy import stats  # half a second that every process of a run would pay

    ours, theirs = [0.31, 0.36, 0.30, 0.33], [0.40, 0.42, 0.37, 0.44]
    result = confirm([*FOUND, *_repeated({0: ours, 2: theirs})], Direction.MINIMIZE)
    assert result is not None
    interval = compare_over_seeds(result.candidates, result.baseline, result.seeds, Direction.MINIMIZE)
    assert interval is not None
    expected = stats.ttest_rel(theirs, ours).confidence_interval(0.95)
    assert interval.low == pytest.approx(expected.low)
    assert interval.high == pytest.approx(expected.high)
    assert interval.mean == pytest.approx(sum(theirs) / 4 - sum(ours) / 4)
    share = sum(theirs) / 4
    assert result.improvement_low == pytest.approx(expected.low / share)
    assert result.improvement_high == pytest.approx(expected.high / share)


def _configs(rng: random.Random, num_candidates: int, *, spread: float) -> list[ConfirmedConfig]:
    """Configs without a true difference, the best mean first and the baseline last, whose spread is `spread`."""
    luck = [rng.gauss(0, 2) for _ in SEEDS]
    configs = []
    for number in range(num_candidates + 1):
        scale = spread if number == num_candidates else 1.0
        values = [10 + shared + rng.gauss(0, scale) for shared in luck]
        results = [SeedResult(seed, 0, "completed", value) for seed, value in zip(SEEDS, values, strict=True)]
        configs.append(ConfirmedConfig(number, 0.0, results, sum(values) / len(values), 1.0))
    return [*sorted(configs[:-1], key=lambda config: config.mean or 0.0), configs[-1]]


@pytest.mark.parametrize(("spread", "most"), [(1.0, 0.035), (3.0, 0.07)])
def test_the_winner_of_three_equals_is_seldom_called_better(spread: float, most: float) -> None:
    rng = random.Random(0)
    num_wrong = 0
    for _ in range(2000):
        *candidates, baseline = _configs(rng, 3, spread=spread)
        interval = compare_over_seeds(candidates, baseline, SEEDS, Direction.MINIMIZE)
        assert interval is not None
        num_wrong += interval.low > 0
    assert num_wrong / 2000 < most


def test_a_config_that_fails_with_a_new_seed_gives_way() -> None:
    evidence = _recommend({1: [0.2, None, 0.2], 0: [0.30, 0.31, 0.32], 2: [0.41, 0.42, 0.43]}).evidence
    assert (evidence.best.number, evidence.verdict) == (0, Verdict.BETTER)
    assert "The config of trial 1 failed with seed 2: failed (diverged)." in evidence.caveats
    result = evidence.confirmation
    assert result is not None
    assert [(config.number, config.mean) for config in result.candidates] == [(0, pytest.approx(0.31)), (1, None)]


def test_a_baseline_that_fails_with_a_new_seed_leaves_the_comparison_open() -> None:
    evidence = _recommend({0: [0.30, 0.31, 0.32], 2: [0.41, None, 0.43]}).evidence
    assert (evidence.verdict, evidence.improvement, evidence.reached_baseline) == (Verdict.UNDECIDED, None, None)
    assert evidence.best.value == pytest.approx(0.31)
    assert evidence.seeds == [0]
    assert evidence.caveats[-1] == "The config of trial 2 failed with seed 2: failed (diverged)."
    assert not any("one seed" in caveat for caveat in evidence.caveats)


def test_where_every_config_fails_the_searchs_best_is_given_without_a_verdict() -> None:
    evidence = _recommend({0: [None, 0.3, 0.3], 1: [0.3, None, None], 2: [0.41, 0.42, 0.43]}).evidence
    assert (evidence.best.number, evidence.best.value, evidence.verdict) == (1, 0.25, Verdict.UNDECIDED)
    assert "The config of trial 1 failed with seed 2, 3: failed (diverged)." in evidence.caveats


def test_seeds_that_not_all_configs_completed_are_left_out() -> None:
    evidence = _recommend({0: [0.30, 0.31, 0.1], 1: [0.33, 0.34], 2: [0.41, 0.42]}).evidence
    assert (evidence.best.number, evidence.seeds) == (0, [1, 2])
    assert evidence.best.value == pytest.approx(0.305)
    unfinished = "The confirmation did not finish: 2 of 3 new seeds were completed by all 3 configs."
    assert unfinished in evidence.caveats


def test_a_confirmation_that_hardly_began_changes_nothing_but_says_so() -> None:
    evidence = _recommend({0: [0.30, 0.31], 1: [0.33], 2: [0.41]}).evidence
    assert (evidence.best.number, evidence.best.value, evidence.verdict) == (1, 0.25, Verdict.BETTER)
    assert evidence.improvement == pytest.approx(0.375)
    assert evidence.seeds == [0]
    assert "one seed" in evidence.caveats[0]
    assert evidence.caveats[-1].startswith("The confirmation did not finish: 1 of 3 new seeds")
    assert "No config was trained again with new seeds" in _recommend({}).evidence.caveats[-1]


def test_without_a_baseline_the_best_mean_is_recommended() -> None:
    trials = [trial for trial in [*FOUND, *_repeated({1: [0.33, 0.34], 0: [0.30, 0.31]})] if trial.number != 2]
    recommendation = recommend(trials, objectives=[Objective(METRIC, Direction.MINIMIZE)], num_seeds=2)
    assert recommendation is not None
    evidence = recommendation.evidence
    assert (evidence.best.number, evidence.verdict, evidence.improvement) == (0, Verdict.NO_BASELINE, None)
    assert evidence.seeds == [1, 2]
    assert not any("one seed" in caveat for caveat in evidence.caveats)


@pytest.mark.parametrize("value", [math.nan, math.inf, None])
def test_a_completed_trial_without_a_finite_value_counts_as_failed(value: float | None) -> None:
    trials = [*FOUND, *_repeated({0: [0.3, 0.3], 1: [0.3, 0.3]})]
    trials.append(_trial(90, Phase.CONFIRMATION, [value], confirms=1, seed=3))
    result = confirm(trials, Direction.MINIMIZE)
    assert result is not None
    assert [config.has_failed for config in result.candidates] == [False, True]


FELL = "The baseline's config (AdamW, trial 2) did worse over new seeds than when it was found"


@pytest.mark.parametrize(
    ("theirs", "said"),
    [
        ([0.60, 0.61, 0.62], [f"{FELL}, by more than the noise: 0.6100 ± 0.010 (mean of 3 new seeds), 0.4000 before. "
          "By these seeds another would lie between 0.5603 and 0.6597 (95% interval). Against 0.4000 the improvement "
          "would be +22.5%."]),
        ([0.45, 0.80, 0.95], [f"{FELL}: 0.7333 ± 0.26 (mean of 3 new seeds), 0.4000 before. "
          "That may be chance: 3 seeds with this spread do not tell. Against 0.4000 the improvement would be +22.5%."]),
        ([0.50, 0.52], [f"{FELL}: 0.5100 ± 0.014 (mean of 2 new seeds), 0.4000 before. "
          "That may be chance: 2 seeds with this spread do not tell. Against 0.4000 the improvement would be +23.8%."]),
        ([0.41, 0.42, 0.43], []),  # ordinary luck
        ([0.4001, 0.4001, 0.4001], []),  # outside an interval without width, but as good as equal
        ([0.30, 0.31, 0.32], []),  # better than when found
    ],
)  # fmt: skip
def test_a_baseline_that_does_worse_over_new_seeds_than_when_found_is_told_beside_the_verdict(
    theirs: Sequence[float], said: list[str]
) -> None:
    recommendation = _recommend({0: [0.30, 0.31, 0.32][: len(theirs)], 2: theirs})
    evidence = recommendation.evidence
    assert evidence.verdict_caveats == said
    lines = evidence_lines(evidence)
    snippet = python_snippet(recommendation).replace("\n#   ", " ")
    answer = answer_of(evidence)
    assert answer is not None
    verdict = lines.index(f"{answer.headline}. {answer.detail}")
    for sentence in said:
        assert sentence in lines[verdict + 1 : verdict + 3]
        assert f"# {sentence}\n" in snippet
    assert recommendation_from_json(json.loads(json.dumps(recommendation.to_json()))).evidence == evidence


def test_a_recommended_config_that_was_lucky_is_told_too_in_either_direction() -> None:
    evidence = _recommend({0: [0.25, 0.26, 0.27], 1: [0.24, 0.24, 0.25]}, direction=Direction.MAXIMIZE).evidence
    (told,) = evidence.verdict_caveats
    assert evidence.best.number == 0
    assert told == (
        "The recommended config (Shampoo, trial 0) did worse over new seeds than when it was found: 0.2600 ± 0.010 "
        "(mean of 3 new seeds), 0.3000 before. That may be chance: 3 seeds with this spread do not tell."
    )
    (told,) = _recommend({0: [0.2, 0.2, 0.2]}, direction=Direction.MAXIMIZE).evidence.verdict_caveats
    assert "by more than the noise: 0.2000 ± 0.0 (mean of 3 new seeds), 0.3000 before" in told


@pytest.mark.parametrize("values", [[0.31, 0.36], [0.31, 0.36, 0.30], [0.31, 0.36, 0.30, 0.33]])
def test_the_interval_of_a_further_seed_is_students(values: Sequence[float]) -> None:
    from scipy import stats  # half a second that every process of a run would pay

    result = confirm([*FOUND, *_repeated({0: values})], Direction.MINIMIZE)
    assert result is not None
    (config,) = result.candidates
    spread = math.sqrt(1 + 1 / len(values)) * statistics.stdev(values)
    expected = stats.t.interval(0.95, len(values) - 1, loc=statistics.fmean(values), scale=spread)
    assert (config.further_low, config.further_high) == pytest.approx(expected)


WORDS = {
    (0.30, 0.31, 0.32): "Shampoo beats AdamW by 26.2%",
    (0.50, 0.51, 0.52): "Shampoo falls short of AdamW by 21.4%",
    (0.30, 0.50, 0.40): "3 new seeds do not tell Shampoo from AdamW",
    (0.4102, 0.4201, 0.4303): "Shampoo and AdamW are level",
}


@pytest.mark.parametrize("ours", WORDS)
def test_terminal_and_snippet_say_how_sure_it_is(ours: tuple[float, float, float]) -> None:
    recommendation = _recommend({0: ours, 2: [0.41, 0.42, 0.43]})
    lines = evidence_lines(recommendation.evidence)
    assert any(line.startswith(f"{WORDS[ours]}. Over 3 new seeds, the improvement lies between") for line in lines)
    assert any("NOT RECOMMENDED over AdamW" in line for line in lines) == ("falls short" in WORDS[ours])
    assert "±" in lines[0]
    assert lines[-2].endswith("confirmation 6 (6 completed).")
    snippet = python_snippet(recommendation)
    ast.parse(snippet)
    assert "(mean of 3 new seeds, config of trial 0)" in snippet
    assert [line for line in lines if f"# {line}\n" not in snippet.replace("\n#   ", " ")] == []


def test_recommendations_stored_before_there_was_a_confirmation_are_read_as_ever() -> None:
    recommendation = recommend(FOUND, objectives=[Objective(METRIC, Direction.MINIMIZE)])
    assert recommendation is not None
    stored = json.loads(json.dumps(recommendation.to_json()))
    assert stored["evidence"].pop("confirmation") is None
    assert stored["evidence"].pop("verdict_caveats") == []
    assert recommendation_from_json(stored) == recommendation
