"""The point at which a config was as good as the baseline's best: one ratio a seed, and an interval over them. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from service.domain import Direction
from service.evidence.comparison.paired import MIN_SEEDS, interval_of
from service.evidence.finished_trial import FinishedTrial
from service.evidence.types import ReachedBaseline

Curve = Sequence[tuple[int, float, Mapping[str, float | None]]]
"""Step, seconds and metrics of each measurement."""


def reached_baseline(
    pairs: Sequence[tuple[FinishedTrial, FinishedTrial]], metric: str, direction: Direction
) -> ReachedBaseline | None:
    """The point at which our trials were as good as the baseline's in the end.

    The intervals are those of the logarithms of the ratios (`paired.interval_of`).

    Args:
        pairs: our trial and the baseline's with each seed.

    Returns:
        None with no pair, or where ours was never as good with one of the seeds.
    """
    steps: list[tuple[int, int]] = []
    times: list[tuple[float, float]] = []
    examples: list[tuple[int, int]] = []
    is_first = False
    for ours, theirs in pairs:
        if theirs.value is None:
            return None
        own_curve, other_curve = _measured_alike(ours, theirs)
        own = _first_reaching(own_curve, theirs.value, metric, direction)
        other = _first_reaching(other_curve, theirs.value, metric, direction)
        if own is None or other is None:
            return None
        is_first = is_first or own[0] == own_curve[0][0]
        steps.append((own[0], other[0]))
        times.append((own[1], other[1]))
        examples.append((own[0] * ours.batch_size, other[0] * theirs.batch_size))
    if not pairs:
        return None
    step_ratio, step_low, step_high = _ratio(steps)
    examples_ratio, examples_low, examples_high = _ratio(examples)
    has_time = all(own > 0 and other > 0 for own, other in times)
    seconds_ratio, seconds_low, seconds_high = _ratio(times) if has_time else (None, None, None)
    return ReachedBaseline(
        step=statistics.fmean(own for own, _ in steps),
        seconds=statistics.fmean(own for own, _ in times),
        baseline_step=statistics.fmean(other for _, other in steps),
        baseline_seconds=statistics.fmean(other for _, other in times),
        step_ratio=step_ratio,
        seconds_ratio=seconds_ratio,
        step_ratio_low=step_low,
        step_ratio_high=step_high,
        seconds_ratio_low=seconds_low,
        seconds_ratio_high=seconds_high,
        examples_ratio=examples_ratio,
        examples_ratio_low=examples_low,
        examples_ratio_high=examples_high,
        is_first_measurement=is_first,
    )


def _measured_alike(ours: FinishedTrial, theirs: FinishedTrial) -> tuple[Curve, Curve]:
    """The measurements after equally many examples: whoever was paused more often was measured more often.

    Trials that are measured by the clock share few of them; then all measurements.
    """
    own, other = ({point[0] * trial.batch_size: point for point in trial.curve} for trial in (ours, theirs))
    shared = own.keys() & other.keys()
    if 2 * len(shared) < min(len(own), len(other)):
        return ours.curve, theirs.curve
    return [own[seen] for seen in sorted(shared)], [other[seen] for seen in sorted(shared)]


def _ratio(pairs: Sequence[tuple[float, float]]) -> tuple[float, float | None, float | None]:
    """Theirs over ours: the geometric mean and both ends of its interval; no interval of one pair."""
    logarithms = [math.log(other / own) for own, other in pairs]
    mean = math.exp(statistics.fmean(logarithms))
    if len(pairs) < MIN_SEEDS:
        return mean, None, None
    interval = interval_of(logarithms)
    return mean, math.exp(interval.low), math.exp(interval.high)


def _first_reaching(curve: Curve, target: float, metric: str, direction: Direction) -> tuple[int, float] | None:
    """Step and seconds of the first measurement at least as good as `target`."""
    for step, seconds, metrics in curve:
        value = metrics.get(metric)
        if value is not None and math.isfinite(value) and not direction.is_better(target, than=value):
            return step, seconds
    return None
