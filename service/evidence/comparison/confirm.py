"""From confirmation trials to a comparison of configs over seeds: pure functions of plain values.

The search's own values do not enter it: the best of many trials is a lucky one, with other seeds it does worse.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence

from service.domain import Direction, Phase
from service.evidence.comparison import student_t
from service.evidence.comparison.finalists import num_choosing, preferred
from service.evidence.comparison.paired import CONFIDENCE, MIN_SEEDS, Interval, interval_of, is_settled
from service.evidence.finished_trial import FinishedTrial
from service.evidence.types import EQUAL_WITHIN, ConfirmationResult, ConfirmedConfig, SeedResult, Verdict


def confirm(
    trials: Sequence[FinishedTrial], direction: Direction, *, choosing: Sequence[int], comparing: Sequence[int]
) -> ConfirmationResult | None:
    """The result of a job's confirmation trials; None if it has none.

    `finalists.preferred` chooses one of the search's configs and one of all baselines' by the choosing seeds; a config
    that failed with any new seed has given way. The two chosen are compared over the comparing seeds that both
    completed, so that each seed's luck with data and initial weights is the same for both.
    """
    by_source: dict[int, list[FinishedTrial]] = {}
    for trial in trials:
        if trial.confirms is not None:
            by_source.setdefault(trial.confirms, []).append(trial)
    if not by_source:
        return None
    sources = {trial.number: trial for trial in trials if trial.number in by_source}
    results = {
        number: [_result(trial) for trial in sorted(own, key=lambda trial: trial.config.seed)]
        for number, own in by_source.items()
    }
    outcomes = _outcomes(results)
    sides = {
        phase: _ranked(
            [trial for trial in sources.values() if trial.phase is phase], outcomes, choosing, direction=direction
        )
        for phase in (Phase.SEARCH, Phase.BASELINE)
    }
    finalists = [ranked[0] for ranked in sides.values() if ranked and None not in outcomes[ranked[0]].values()]
    seeds = [seed for seed in comparing if finalists and all(seed in outcomes[number] for number in finalists)]
    configs = {
        number: _config(
            sources[number],
            results[number],
            choosing=choosing,
            compared=seeds if number in finalists and len(seeds) >= MIN_SEEDS else [],
        )
        for number in sources
    }
    candidates, rivals = ([configs[number] for number in sides[phase]] for phase in (Phase.SEARCH, Phase.BASELINE))
    baseline = rivals[0] if rivals else None
    result = ConfirmationResult(
        seeds=seeds,
        candidates=candidates,
        baseline=baseline,
        confidence=CONFIDENCE,
        improvement_low=None,
        improvement_high=None,
        choosing_seeds=[seed for seed in choosing if any(seed in own for own in outcomes.values())],
        baseline_others=rivals[1:],
    )
    interval = compare_over_seeds(result, direction)
    if interval is None or baseline is None or not baseline.mean:
        return result
    share = abs(baseline.mean)
    return dataclasses.replace(
        result,
        improvement_low=interval.low / share,
        improvement_high=interval.high / share,
        is_settled=is_settled(
            differences_of(result, direction), num_planned=len(comparing), equal_within=EQUAL_WITHIN * share
        ),
    )


def split_seeds(seeds: Sequence[int], *, top_k: int, num_baselines: int = 1) -> tuple[list[int], list[int]]:
    """The seeds of a confirmation of `top_k` configs a side: those that choose, and those that compare."""
    num = num_choosing(top_k=top_k, num_seeds=len(seeds), num_baselines=num_baselines)
    return list(seeds[:num]), list(seeds[num:])


def compare_over_seeds(result: ConfirmationResult, direction: Direction) -> Interval | None:
    """The gain of the chosen config over the baseline's, in units of the objective; None: not comparable.

    The differences with the comparing seeds, which chose neither, make the interval (`paired.interval_of`); so it
    needs no allowance for the choice, and no equal spreads. `tests.benchmarks.answers.verdict_errors` simulates how
    often the whole of it, choice and second chances included, errs.
    """
    differences = differences_of(result, direction)
    return interval_of(differences) if len(differences) >= MIN_SEEDS else None


def differences_of(result: ConfirmationResult, direction: Direction) -> list[float]:
    """The gains of the chosen config over the baseline's, by comparing seed; empty: they are not compared."""
    best, baseline = next(iter(result.candidates), None), result.baseline
    if best is None or baseline is None or best.mean is None or baseline.mean is None:
        return []
    sign = 1.0 if direction is Direction.MINIMIZE else -1.0
    ours, theirs = _values(best.results, result.seeds), _values(baseline.results, result.seeds)
    return [sign * (other - own) for own, other in zip(ours, theirs, strict=True)]


def _ranked(
    found: Sequence[FinishedTrial],
    outcomes: Mapping[int, Mapping[int, float | None]],
    choosing: Sequence[int],
    *,
    direction: Direction,
) -> list[int]:
    """The configs of the search or of all baselines, the chosen one first and those that failed last.

    Where the time was up before all of those that did not fail had the choosing seeds, the best found value stands.
    """
    sign = 1.0 if direction is Direction.MINIMIZE else -1.0
    by_value = [trial.number for trial in sorted(found, key=lambda trial: (sign * (trial.value or 0.0), trial.number))]
    fit = [number for number in by_value if None not in outcomes[number].values()]
    ranked = preferred(by_value, outcomes, choosing=choosing, direction=direction)
    first = ranked if len(ranked) == len(fit) else fit
    return [*first, *(number for number in by_value if number not in first)]


def further_seed(values: Sequence[float]) -> tuple[float, float]:
    """The interval that holds a config's value with one further seed, by its values with `values`' seeds.

    Student's prediction interval of a normal distribution, mean +- t s sqrt(1 + 1/n) (Hahn, Factors for Calculating
    Two-Sided Prediction Intervals for Samples from a Normal Distribution, 1969). It holds for a config that was not
    chosen by that further seed; the value of one that was lies beyond its better end more often than that
    (`tests.benchmarks.answers.verdict_errors`).
    """
    mean, deviation, num = statistics.fmean(values), statistics.stdev(values), len(values)
    reach = student_t.quantile(0.5 * (1.0 + CONFIDENCE), num - 1) * deviation * math.sqrt(1.0 + 1.0 / num)
    return mean - reach, mean + reach


def verdict_of(interval: Interval, baseline: float) -> Verdict:
    """The verdict that an interval of differences allows.

    `equal`: all of it lies within `EQUAL_WITHIN` of no difference. `better` or `worse`: all of it is on one side of no
    difference. Else `undecided`: more seeds would tell, or nothing.

    Args:
        interval: by how much ours is better, in units of the objective.
        baseline: its mean.
    """
    share = abs(baseline)
    is_point = interval.low == interval.high == 0.0
    if is_point or (share and interval.low / share >= -EQUAL_WITHIN and interval.high / share <= EQUAL_WITHIN):
        return Verdict.EQUAL
    if interval.low > 0.0:
        return Verdict.BETTER
    return Verdict.WORSE if interval.high < 0.0 else Verdict.UNDECIDED


def _outcomes(by_source: Mapping[int, Sequence[SeedResult]]) -> dict[int, dict[int, float | None]]:
    """Values by seed of the trials that ended of themselves."""
    return {
        number: {result.seed: result.value for result in own if result.value is not None or result.has_failed}
        for number, own in by_source.items()
    }


def _result(trial: FinishedTrial) -> SeedResult:
    return SeedResult(trial.config.seed, trial.number, trial.ending, trial.final_value)


def _config(
    source: FinishedTrial, results: list[SeedResult], *, choosing: Sequence[int], compared: Sequence[int]
) -> ConfirmedConfig:
    """One config over its new seeds; with `compared` empty it takes no part in the comparison."""
    assert source.value is not None
    chosen, values = _values(results, choosing), _values(results, compared)
    low, high = further_seed(values) if values else (None, None)
    return ConfirmedConfig(
        number=source.number,
        found_value=source.value,
        results=results,
        mean=statistics.fmean(values) if values else None,
        standard_deviation=statistics.stdev(values) if values else None,
        further_low=low,
        further_high=high,
        choosing_mean=statistics.fmean(chosen) if choosing and len(chosen) == len(choosing) else None,
    )


def _values(results: Sequence[SeedResult], seeds: Sequence[int]) -> list[float]:
    return [result.value for result in results if result.seed in seeds and result.value is not None]
