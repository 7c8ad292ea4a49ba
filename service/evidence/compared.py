"""The best configs of the search and of the baselines, chosen and compared: by new seeds where there are any."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from search_spaces import SearchSpace
from service.domain import Currency, Direction, Objective, Phase, Side
from service.evidence.comparison.confirm import confirm
from service.evidence.comparison.equal_spending import compare_at_equal_spending
from service.evidence.finished_trial import FinishedTrial, Pair
from service.evidence.lineage import lineage_of
from service.evidence.luck.job_luck import sides_of, with_luck
from service.evidence.luck.searched_side import SearchedSide
from service.evidence.types import ConfirmationResult, ConfirmedConfig, CurrencyComparison, Winner


@dataclass(frozen=True, slots=True)
class ComparedSides:
    """The recommended config and the best of the baselines, and how the two compare."""

    best: Winner
    baseline: Winner | None
    confirmation: ConfirmationResult | None
    over_seeds: ConfirmationResult | None
    """The confirmation as it was computed, if it compares the two; None: without it, or with one seed each."""
    has_failed: bool
    """True if they cannot be compared, as one of them failed with a new seed."""
    pairs: list[Pair]
    """The trials that are compared; empty: none."""
    comparisons: list[CurrencyComparison]
    search_interval: tuple[float, float] | None
    """The interval of `Evidence.search_interval`."""
    searched: SearchedSide | None
    """The search's side, as its luck is told by; None: there was no confirmation, or nothing to tell it by."""


def compare_sides(
    trials: Sequence[FinishedTrial],
    objective: Objective,
    *,
    choosing: Sequence[int],
    comparing: Sequence[int],
    top_k: int,
    spaces: Mapping[Side, SearchSpace],
    currency: Currency,
    takes_equal_seconds: bool,
) -> ComparedSides | None:
    """Chooses the two configs and compares them; None: no search trial completed."""
    metric, direction = objective.metric, objective.direction
    best = winner_by_value(trials, Phase.SEARCH, direction)
    if best is None:
        return None
    baseline = winner_by_value(trials, Phase.BASELINE, direction)
    result = confirm(trials, direction, choosing=choosing, comparing=comparing)
    search_interval = None
    sides: dict[Phase, SearchedSide] = {}
    if result is not None:
        sides = sides_of(result, trials, spaces, metric=metric, top_k=top_k, num_choosing=len(choosing))
        result, search_interval = with_luck(result, sides, direction)
    if result is not None and result.candidates:
        best = _with_seeds(_winner_of(trials, result.candidates[0].number), result.candidates[0])
    if result is not None and result.baseline is not None:
        baseline = _with_seeds(_winner_of(trials, result.baseline.number), result.baseline)
    over_seeds = result if result is not None and _compares(result, best, baseline) else None
    has_failed = over_seeds is None and _has_failed(result, best, baseline)
    pairs = [] if baseline is None or has_failed else _pairs(trials, best, baseline, over_seeds)
    comparisons = compare_at_equal_spending(pairs, metric, direction, currency, as_planned=takes_equal_seconds)
    if comparisons and not _is_of_whole_trials(comparisons[0], best, baseline):
        search_interval = None  # it is of the difference of whole trials
        result = None if result is None else dataclasses.replace(result, is_settled=False)
    if result is not None and over_seeds is not None and comparisons:
        low, high = comparisons[0].improvement_low, comparisons[0].improvement_high
        result = dataclasses.replace(result, improvement_low=low, improvement_high=high)
    return ComparedSides(
        best=best,
        baseline=baseline,
        confirmation=result,
        over_seeds=over_seeds,
        has_failed=has_failed,
        pairs=pairs,
        comparisons=comparisons,
        search_interval=search_interval,
        searched=sides.get(Phase.SEARCH),
    )


def winner_by_value(trials: Sequence[FinishedTrial], phase: Phase, direction: Direction) -> Winner | None:
    """The completed trial of a phase with the best value; None: there is none."""
    sign = 1.0 if direction is Direction.MINIMIZE else -1.0
    candidates = [
        (sign * value, trial.number)
        for trial in trials
        if trial.phase is phase and (value := trial.final_value) is not None
    ]
    return _winner_of(trials, min(candidates)[1]) if candidates else None


def _winner_of(trials: Sequence[FinishedTrial], number: int) -> Winner:
    trial = next(trial for trial in trials if trial.number == number)
    assert trial.value is not None
    step, seconds, metrics = trial.curve[-1] if trial.curve else (trial.config.num_steps, 0.0, {})
    lineage = lineage_of(trial, trials, last_step=step)
    return Winner(trial.number, trial.value, dict(trial.config.content), dict(metrics), step, seconds, lineage)


def _with_seeds(winner: Winner, config: ConfirmedConfig) -> Winner:
    return winner if config.mean is None else dataclasses.replace(winner, value=config.mean)


def _compares(result: ConfirmationResult, best: Winner, baseline: Winner | None) -> bool:
    """True if the recommended config, and the baseline if there is one, were compared over seeds."""
    means = {config.number: config.mean for config in result.configs}
    return all(means.get(winner.number) is not None for winner in (best, baseline) if winner is not None)


def _has_failed(result: ConfirmationResult | None, best: Winner, baseline: Winner | None) -> bool:
    """True if the two cannot be compared, because one of them failed with a new seed."""
    if result is None or baseline is None:
        return False
    repeated = [config for config in result.configs if config.number in (best.number, baseline.number)]
    return any(config.has_failed or config.mean is not None for config in repeated)


def _is_of_whole_trials(comparison: CurrencyComparison, best: Winner, baseline: Winner | None) -> bool:
    """True if both had spent equally much in the end, up to the last batch: then their last values are compared."""
    return baseline is not None and (comparison.value, comparison.baseline_value) == (best.value, baseline.value)


def _pairs(
    trials: Sequence[FinishedTrial], best: Winner, baseline: Winner, over_seeds: ConfirmationResult | None
) -> list[Pair]:
    """The trials of the two with each compared seed, or without any those that found the two configs."""
    by_key = {(trial.confirms, trial.config.seed): trial for trial in trials if trial.confirms is not None}
    by_number = {trial.number: trial for trial in trials}
    if over_seeds is None:
        return [(by_number[best.number], by_number[baseline.number])]
    return [(by_key[best.number, seed], by_key[baseline.number, seed]) for seed in over_seeds.seeds]
