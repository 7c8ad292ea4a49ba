"""The models of luck applied to a job: its trials as they see them, and their answers in its confirmation."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from search_spaces import SearchSpace
from service.domain import Direction, Phase, Side, TrialState, side_of
from service.evidence.comparison.confirm import compare_over_seeds, differences_of
from service.evidence.finished_trial import FinishedTrial
from service.evidence.luck.best_probability import best_probabilities
from service.evidence.luck.search_luck import interval_of_searches
from service.evidence.luck.searched_side import SearchedSide, TriedTrial, point_of
from service.evidence.luck.true_means import NoNoise
from service.evidence.types import ConfirmationResult, ConfirmedConfig

_ENDED = (TrialState.COMPLETED, TrialState.PRUNED, TrialState.FAILED)


def sides_of(
    result: ConfirmationResult,
    trials: Sequence[FinishedTrial],
    spaces: Mapping[Side, SearchSpace],
    *,
    metric: str,
    top_k: int,
    num_choosing: int,
) -> dict[Phase, SearchedSide]:
    """The sides of a job about which there is something to say: the search, and the baseline that was compared.

    Args:
        spaces: the spaces that the sides took their configs from; a side without one is left out.
    """
    by_number = {trial.number: trial for trial in trials}
    rivals = [*([] if result.baseline is None else [result.baseline]), *result.baseline_others]
    found = {}
    for phase, all_configs in ((Phase.SEARCH, result.candidates), (Phase.BASELINE, rivals)):
        if not all_configs:
            continue
        name = _name_of_side(by_number[all_configs[0].number])
        configs = [config for config in all_configs if _name_of_side(by_number[config.number]) == name]
        own = [trial for trial in trials if trial.phase is phase and _name_of_side(trial) == name]
        if (space := spaces.get(name)) is not None and (
            side := _side_of(configs, own, space, metric=metric, top_k=top_k, num_choosing=num_choosing)
        ) is not None:
            found[phase] = side
    return found


def _name_of_side(trial: FinishedTrial) -> Side:
    return side_of(trial.phase, trial.optimizer)


def with_luck(
    result: ConfirmationResult, sides: Mapping[Phase, SearchedSide], direction: Direction
) -> tuple[ConfirmationResult, tuple[float, float] | None]:
    """The confirmation with the probability of each config to be the best, and the interval of repeated searches.

    The interval is that of the improvement, a share of the baseline's mean, and allows for the luck of both searches.
    None: the two were not compared, the baseline's mean is 0, or on a side the noise over seeds is unknown.
    """
    return _with_probabilities(result, sides, direction), _search_interval(result, sides, direction)


def tried_trials(trials: Sequence[FinishedTrial], space: SearchSpace, metric: str) -> list[TriedTrial]:
    """The trials of a search as the models of luck see them.

    A trial that was cancelled, as when the time was up, says as much as a pruned one if it was measured. Others, and
    those lost through no fault of their own, say nothing of what a search finds: they are left out.
    """
    return [
        _tried(trial, space, metric)
        for trial in trials
        if (trial.state in _ENDED or (trial.state is TrialState.CANCELLED and trial.curve))
        and not (trial.reason is not None and trial.reason.is_loss)
    ]


def _side_of(
    configs: Sequence[ConfirmedConfig],
    trials: Sequence[FinishedTrial],
    space: SearchSpace,
    *,
    metric: str,
    top_k: int,
    num_choosing: int,
) -> SearchedSide | None:
    """One side of a job, its search or a baseline; None: none of its configs completed all its new seeds.

    Args:
        configs: that side's configs, the chosen one first.
        trials: that side's trials.
        metric: the objective.
        top_k: configs that were to be trained again.
        num_choosing: new seeds that were to choose among them.
    """
    repeats = {
        config.number: values
        for config in configs
        if not config.has_failed and (values := [own.value for own in config.results if own.value is not None])
    }
    if not configs or configs[0].number not in repeats:
        return None
    return SearchedSide(
        trials=tried_trials(trials, space, metric),
        repeats=repeats,
        chosen=configs[0].number,
        top_k=top_k,
        num_choosing=num_choosing,
    )


def _with_probabilities(
    result: ConfirmationResult, sides: Mapping[Phase, SearchedSide], direction: Direction
) -> ConfirmationResult:
    """The confirmation whose configs know with what probability each is the best of its side's."""
    found: dict[int, float] = {}
    for side in sides.values():
        if len(side.repeats) > 1:
            try:
                found |= best_probabilities(side, direction)
            except NoNoise:
                continue

    def known(config: ConfirmedConfig) -> ConfirmedConfig:
        return dataclasses.replace(config, probability_best=found.get(config.number))

    return dataclasses.replace(
        result,
        candidates=[known(config) for config in result.candidates],
        baseline=None if result.baseline is None else known(result.baseline),
        baseline_others=[known(config) for config in result.baseline_others],
    )


def _search_interval(
    result: ConfirmationResult, sides: Mapping[Phase, SearchedSide], direction: Direction
) -> tuple[float, float] | None:
    """The interval of the improvement with the luck of both searches; None: as in `with_luck`."""
    over_seeds, baseline = compare_over_seeds(result, direction), result.baseline
    if over_seeds is None or baseline is None or not baseline.mean or len(sides) < 2:
        return None
    try:
        low, high = interval_of_searches(
            differences_of(result, direction),
            (over_seeds.low, over_seeds.high),
            sides[Phase.SEARCH],
            sides[Phase.BASELINE],
            direction,
        )
    except NoNoise:
        return None
    return low / abs(baseline.mean), high / abs(baseline.mean)


def _tried(trial: FinishedTrial, space: SearchSpace, metric: str) -> TriedTrial:
    final = trial.final_value
    curve = [
        (step * trial.batch_size, value)
        for step, _, metrics in trial.curve
        if (value := metrics.get(metric)) is not None and math.isfinite(value)
    ]
    if final is not None and not curve:
        curve = [(trial.config.num_steps * trial.batch_size, final)]
    return TriedTrial(
        trial.number,
        point_of(space, trial.parameters),
        curve,
        has_completed=final is not None,
        has_failed=trial.state is TrialState.FAILED or (trial.state is TrialState.COMPLETED and final is None),
    )
