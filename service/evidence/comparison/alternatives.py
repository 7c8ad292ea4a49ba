"""Configs that confirmed alike, with what else speaks for one or the other: pure functions of plain values."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from search_spaces import SearchSpace
from search_spaces.edges import edges
from service.domain import Direction, FailureReason
from service.evidence.finished_trial import FinishedTrial
from service.evidence.types import Alternative, ConfirmationResult, ConfirmedConfig

NOTABLE = 0.05
"""Share by which a cost must differ to speak for a config."""
COSTS = {
    "step_seconds": "{share:.0%} less time per step",
    "peak_memory_bytes": "{share:.0%} less memory at the peak",
    "optimizer_state_bytes": "{share:.0%} less optimizer state",
}
"""The words for a config that takes less, by metric."""


def alternatives_of(
    result: ConfirmationResult,
    trials: Sequence[FinishedTrial],
    direction: Direction,
    *,
    space: SearchSpace | None = None,
) -> list[Alternative]:
    """The other configs of the search that did no worse with new seeds than the chosen one, up to the noise.

    They were trained with the choosing seeds alone. The noise is the chosen config's: another is alike if its mean over
    those seeds lies within, or beyond the better end of, the interval in which the chosen one's mean over as many
    further seeds would lie: with m of them and n compared ones, mean +- t s sqrt(1/m + 1/n), as `confirm.further_seed`
    has it for m = 1.

    Args:
        space: the search's space; None: unknown, and nothing is said of the edges of its ranges.
    """
    chosen = next(iter(result.candidates), None)
    if chosen is None or chosen.choosing_mean is None or chosen.mean is None:
        return []
    further = chosen.further_high if direction is Direction.MINIMIZE else chosen.further_low
    if further is None:
        return []
    num, num_compared = len(result.choosing_seeds), len(result.seeds)
    narrower = math.sqrt((1.0 / num + 1.0 / num_compared) / (1.0 + 1.0 / num_compared))
    worse_end = chosen.mean + narrower * (further - chosen.mean)
    return [
        Alternative(
            number=other.number,
            mean=other.choosing_mean,
            recommended_mean=chosen.choosing_mean,
            speaks_for_it=_advantages(other, chosen, trials, space),
            speaks_for_recommended=_advantages(chosen, other, trials, space),
        )
        for other in result.candidates[1:]
        if other.choosing_mean is not None
        and not other.has_failed
        and not direction.is_better(worse_end, than=other.choosing_mean)
    ]


def _advantages(
    config: ConfirmedConfig, other: ConfirmedConfig, trials: Sequence[FinishedTrial], space: SearchSpace | None
) -> list[str]:
    """Tells what speaks for `config` beside its value, in words."""
    found = []
    for metric, words in COSTS.items():
        own, theirs = _mean(metric, config, trials), _mean(metric, other, trials)
        if own is not None and theirs and own < (1.0 - NOTABLE) * theirs:
            found.append(words.format(share=1.0 - own / theirs))
    own_room, other_room = _room(config, trials), _room(other, trials)
    if own_room is not None and other_room is not None and own_room > (1.0 + NOTABLE) * other_room:
        found.append(
            f"farther from the cliff: a learning rate {own_room:.2g} times its own diverged, and of the other "
            f"{other_room:.2g} times"
        )
    if space is not None:
        own_edges, other_edges = ({edge.name for edge in edges(space, _parameters(c, trials))} for c in (config, other))
        if other_edges and not own_edges:
            found.append(f"no value at the edge of its range, where the other has {' and '.join(sorted(other_edges))}")
    return found


def _mean(metric: str, config: ConfirmedConfig, trials: Sequence[FinishedTrial]) -> float | None:
    """Over the last measurements of the trials that repeat the config."""
    values = [
        value
        for trial in trials
        if trial.confirms == config.number and trial.curve and (value := trial.curve[-1][2].get(metric)) is not None
    ]
    return statistics.fmean(values) if values else None


def _room(config: ConfirmedConfig, trials: Sequence[FinishedTrial]) -> float | None:
    """The smallest learning rate above the config's with which a trial of its phase diverged, over its own."""
    source = next(trial for trial in trials if trial.number == config.number)
    own = _learning_rate(source)
    cliffs = [
        rate
        for trial in trials
        if trial.phase is source.phase
        and trial.reason is FailureReason.DIVERGED
        and (rate := _learning_rate(trial)) is not None
        and own is not None
        and rate > own
    ]
    return min(cliffs) / own if cliffs and own else None


def _parameters(config: ConfirmedConfig, trials: Sequence[FinishedTrial]) -> Mapping[str, Any]:
    return next(trial for trial in trials if trial.number == config.number).parameters


def _learning_rate(trial: FinishedTrial) -> float | None:
    rate = trial.config.arguments.get("lr")
    return float(rate) if isinstance(rate, int | float) else None
