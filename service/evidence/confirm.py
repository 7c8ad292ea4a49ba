"""From confirmation trials to a comparison of configs over seeds: pure functions of plain values.

The search's own values do not enter it: the best of many trials is a lucky one, with other seeds it does worse.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from service.domain import Direction, Phase, TrialState
from service.evidence import student_t
from service.evidence.types import (
    EQUAL_WITHIN,
    ConfirmationResult,
    ConfirmedConfig,
    FinishedTrial,
    SeedResult,
    Verdict,
)

CONFIDENCE = 0.95
MIN_SEEDS = 2
"""With which a spread over seeds can be told."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean difference and the interval that holds the true one with some confidence."""

    mean: float
    low: float
    high: float


def confirm(trials: Sequence[FinishedTrial], direction: Direction) -> ConfirmationResult | None:
    """The result of a job's confirmation trials; None if it has none.

    A config with a failed trial takes no part in the comparison. The others are compared over the seeds with which
    all of them completed, so that each seed's luck with data and initial weights is the same for all; where the time
    ran out in the middle of a seed, that seed is left out.
    """
    by_source: dict[int, list[FinishedTrial]] = {}
    for trial in trials:
        if trial.confirms is not None:
            by_source.setdefault(trial.confirms, []).append(trial)
    if not by_source:
        return None
    sources = {trial.number: trial for trial in trials if trial.number in by_source}
    results = {number: [_result(trial) for trial in sorted(own, key=_seed)] for number, own in by_source.items()}
    fit = [number for number, own in results.items() if not any(result.has_failed for result in own)]
    completed = [{result.seed for result in results[number] if result.value is not None} for number in fit]
    seeds = sorted(set.intersection(*completed)) if completed else []
    configs = {
        number: _config(sources[number], own, seeds if number in fit and len(seeds) >= MIN_SEEDS else [])
        for number, own in results.items()
    }
    ranked = sorted(configs.values(), key=lambda config: _rank(config, direction))
    candidates = [config for config in ranked if sources[config.number].phase is Phase.SEARCH]
    baseline = next((config for config in ranked if sources[config.number].phase is Phase.BASELINE), None)
    interval = compare_over_seeds(candidates, baseline, seeds, direction)
    share = None if baseline is None or not baseline.mean else abs(baseline.mean)
    return ConfirmationResult(
        seeds=seeds,
        candidates=candidates,
        baseline=baseline,
        confidence=CONFIDENCE,
        improvement_low=None if interval is None or share is None else interval.low / share,
        improvement_high=None if interval is None or share is None else interval.high / share,
    )


def compare_over_seeds(
    candidates: Sequence[ConfirmedConfig], baseline: ConfirmedConfig | None, seeds: Sequence[int], direction: Direction
) -> Interval | None:
    """By how much the first candidate is better than the baseline, in units of the objective; None: not comparable.

    The configs and seeds are a randomised complete block design, each seed a block: what a seed does to all configs
    alike drops out, and the spread that is left is pooled over the c configs (the k candidates and the baseline), with
    (c - 1)(n - 1) degrees of freedom over n seeds (Montgomery, Design and Analysis of Experiments, section 4.1). With
    one candidate this is the paired t interval, which for few seeds is wide; pooling is what makes three seeds useful.

    The candidate was chosen as the best of k, and the best of many is a lucky one here, too. So the interval is
    Bonferroni's (Dunn, Multiple Comparisons Among Means, 1961), with t at 1 - (1 - CONFIDENCE) / 2k: it holds for all
    k at once, and so for whichever comes out best. `tests.benchmarks.verdict_errors` simulates how often it errs, also
    where spreads differ, and how much more often t intervals of the winner alone would.
    """
    compared = [config for config in candidates if config.mean is not None]
    if not compared or baseline is None or baseline.mean is None:
        return None
    configs = [*compared, baseline]
    rows = [_values(config, seeds) for config in configs]
    seed_means = [statistics.fmean(column) for column in zip(*rows, strict=True)]
    grand_mean = statistics.fmean(seed_means)
    residuals = [
        value - statistics.fmean(row) - seed_mean + grand_mean
        for row in rows
        for value, seed_mean in zip(row, seed_means, strict=True)
    ]
    num_seeds, degrees = len(seeds), (len(configs) - 1) * (len(seeds) - 1)
    variance = math.fsum(residual * residual for residual in residuals) / degrees
    probability = 1.0 - (1.0 - CONFIDENCE) / (2 * len(compared))
    reach = student_t.quantile(probability, degrees) * math.sqrt(2.0 * variance / num_seeds)
    best_mean = compared[0].mean
    assert best_mean is not None
    mean = baseline.mean - best_mean if direction is Direction.MINIMIZE else best_mean - baseline.mean
    return Interval(mean, mean - reach, mean + reach)


def further_seed(values: Sequence[float]) -> tuple[float, float]:
    """The interval that holds a config's value with one further seed, by its values with `values`' seeds.

    Student's prediction interval of a normal distribution, mean +- t s sqrt(1 + 1/n) (Hahn, Factors for Calculating
    Two-Sided Prediction Intervals for Samples from a Normal Distribution, 1969). It holds for a config that was not
    chosen by that further seed; the value of one that was lies beyond its better end more often than that
    (`tests.benchmarks.verdict_errors`).
    """
    mean, deviation, num = statistics.fmean(values), statistics.stdev(values), len(values)
    reach = student_t.quantile(0.5 * (1.0 + CONFIDENCE), num - 1) * deviation * math.sqrt(1.0 + 1.0 / num)
    return mean - reach, mean + reach


def verdict_over_seeds(result: ConfirmationResult, direction: Direction) -> Verdict:
    """The verdict that the interval allows.

    `equal`: all of it lies within `EQUAL_WITHIN` of no difference. `better` or `worse`: all of it is on one side of no
    difference. Else `undecided`: more seeds would tell, or nothing.
    """
    if result.baseline is None:
        return Verdict.NO_BASELINE
    interval = compare_over_seeds(result.candidates, result.baseline, result.seeds, direction)
    if interval is None:
        return Verdict.UNDECIDED
    low, high = result.improvement_low, result.improvement_high
    is_point = interval.low == interval.high == 0.0
    if is_point or (low is not None and high is not None and low >= -EQUAL_WITHIN and high <= EQUAL_WITHIN):
        return Verdict.EQUAL
    if interval.low > 0.0:
        return Verdict.BETTER
    return Verdict.WORSE if interval.high < 0.0 else Verdict.UNDECIDED


def mean_curve(
    trials: Sequence[FinishedTrial], metric: str, seeds: Sequence[int]
) -> list[tuple[int, float, Mapping[str, float | None]]]:
    """Step, mean seconds and mean metric over the trials with these seeds, at the steps that all of them measured."""
    curves = [
        {step: (seconds, metrics.get(metric)) for step, seconds, metrics in trial.curve}
        for trial in trials
        if _seed(trial) in seeds
    ]
    shared = sorted(set.intersection(*(set(curve) for curve in curves))) if curves else []
    found: list[tuple[int, float, Mapping[str, float | None]]] = []
    for step in shared:
        values = [curve[step][1] for curve in curves]
        finite = [value for value in values if value is not None and math.isfinite(value)]
        mean = statistics.fmean(finite) if len(finite) == len(values) else None
        found.append((step, statistics.fmean(curve[step][0] for curve in curves), {metric: mean}))
    return found


def _result(trial: FinishedTrial) -> SeedResult:
    has_value = trial.state is TrialState.COMPLETED and trial.value is not None and math.isfinite(trial.value)
    return SeedResult(_seed(trial), trial.number, trial.ending, trial.value if has_value else None)


def _config(source: FinishedTrial, results: list[SeedResult], seeds: Sequence[int]) -> ConfirmedConfig:
    """One config over its new seeds; with `seeds` empty it takes no part in the comparison."""
    assert source.value is not None
    compared = [result.value for result in results if result.seed in seeds and result.value is not None]
    low, high = further_seed(compared) if compared else (None, None)
    return ConfirmedConfig(
        number=source.number,
        found_value=source.value,
        results=results,
        mean=statistics.fmean(compared) if compared else None,
        standard_deviation=statistics.stdev(compared) if compared else None,
        further_low=low,
        further_high=high,
    )


def _values(config: ConfirmedConfig, seeds: Sequence[int]) -> list[float]:
    return [result.value for result in config.results if result.seed in seeds and result.value is not None]


def _rank(config: ConfirmedConfig, direction: Direction) -> tuple[bool, bool, float, int]:
    """The best mean first; those without one by what the search found, if none of their trials failed."""
    value = config.found_value if config.mean is None else config.mean
    return config.mean is None, config.has_failed, value if direction is Direction.MINIMIZE else -value, config.number


def _seed(trial: FinishedTrial) -> int:
    return int(trial.config["seed"])
