"""The learning curves of a job: which are drawn, and their points as columns. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

from service.api.figures import MAX_CURVES, choose_curves
from service.dashboard.charts.columns import points_of_each, rounded, rounded_all, thinned
from service.dashboard.charts.sides import group_of
from service.domain import Direction, Phase, Side, TrialState
from service.store.repositories.of_trials.chart_rows import ChartConfig, ChartTrial
from service.store.repositories.of_trials.measurements import CurvePoint

CurveAxis = Literal["step", "examples", "epoch", "seconds", "device_seconds"]

MAX_RUNGS = 8
"""Lines across a chart that are still told apart, by judgement."""
MAX_TEXT_LENGTH = 60
"""Characters of a text in a label, by judgement: about one line of it."""


@dataclass(frozen=True, slots=True)
class ChosenCurves:
    """The curves that are drawn, of those that there are."""

    drawn: list[ChartTrial]
    """The trials that are drawn, by number."""
    num_measured: int
    num_best: int
    """Number of those drawn that are the best; the others are an even choice and those that train now. All, if all are
    drawn."""
    num_training: int
    """Number of those drawn because they train now."""


def chosen(trials: Sequence[ChartTrial], direction: Direction, limit: int = MAX_CURVES) -> ChosenCurves:
    """The best half of `limit` curves, an even choice of the rest, and those of trials that train now."""
    measured = [trial for trial in trials if trial.step]
    drawn = choose_curves(measured, direction=direction, limit=limit)
    if len(drawn) == len(measured):
        return ChosenCurves(drawn, len(measured), len(measured), 0)
    there = {trial.number for trial in drawn}
    training = [trial for trial in measured if trial.state is TrialState.RUNNING and trial.number not in there]
    both = sorted([*drawn, *training[:limit]], key=lambda trial: trial.number)
    return ChosenCurves(both, len(measured), limit // 2, len(training[:limit]))


def rungs_of(trials: Sequence[ChartTrial]) -> list[int]:
    """The steps at which trials of the search were stopped or paused again and again: the rungs of its pruner, read
    off what happened."""
    ended = Counter(
        trial.step
        for trial in trials
        if trial.step
        and trial.phase is not Phase.CONFIRMATION
        and trial.state in (TrialState.PRUNED, TrialState.QUEUED)
    )
    fewest = max(2, ended.total() // 20)
    often = [step for step, count in ended.most_common(MAX_RUNGS) if count >= fewest]
    return sorted(often)


def axes_of(
    points: Mapping[str, Sequence[CurvePoint]], configs: Mapping[int, ChartConfig], *, num_ranks: int
) -> list[CurveAxis]:
    """The horizontal axes that tell something of these curves; the first is the one to begin with."""
    axes: list[CurveAxis] = ["step"]
    if len({config.batch_size for config in configs.values()}) > 1:
        axes.insert(0, "examples")  # equal steps are not equally far then
    ends = [own[-1] for own in points.values() if own]
    if any(point.epoch > 0 for point in ends):
        axes.append("epoch")
    if any(point.seconds > 0 for point in ends):
        axes.append("seconds")
        if num_ranks > 1:
            axes.append("device_seconds")
    return axes


def along(points: Sequence[CurvePoint], axis: CurveAxis, *, batch_size: int, num_ranks: int) -> list[float]:
    """The places of the points on an axis other than the steps."""
    match axis:
        case "examples":
            return [point.step * batch_size for point in points]
        case "epoch":
            return [point.epoch for point in points]
        case "seconds":
            return [point.seconds for point in points]
        case "device_seconds":
            return [point.seconds * num_ranks for point in points]
        case "step":
            return [point.step for point in points]


def curve_columns(
    trials: Sequence[ChartTrial],
    points: Mapping[str, Sequence[CurvePoint]],
    configs: Mapping[int, ChartConfig],
    sides: Mapping[int, Side],
    *,
    axis: CurveAxis,
    num_ranks: int,
) -> dict[str, Any]:
    """Curves as columns, an entry for each trial.

    `grid` are the steps of the longest; `steps` of a curve is null where its own are the beginning of these, and `x` is
    null where it is drawn over its steps.
    """
    limit = points_of_each(len(trials))
    thin = [thinned(points.get(trial.id, ()), limit) for trial in trials]
    steps = [[point.step for point in own] for own in thin]
    grid = max(steps, key=len, default=[])
    names = list(dict.fromkeys(chain.from_iterable(configs[trial.number].parameters for trial in trials)))
    return {
        "number": [trial.number for trial in trials],
        "group": [group_of(trial, sides[trial.number]) for trial in trials],
        "side": [sides[trial.number] for trial in trials],
        "state": [trial.state.value for trial in trials],
        "reason": [trial.reason.value if trial.reason else None for trial in trials],
        "confirms": [trial.confirms for trial in trials],
        "parameters": names,
        "values": [[told(configs[trial.number].parameters.get(name)) for name in names] for trial in trials],
        "grid": grid,
        "steps": [None if own == grid[: len(own)] else own for own in steps],
        "x": [
            None
            if axis == "step"
            else rounded_all(along(own, axis, batch_size=configs[trial.number].batch_size, num_ranks=num_ranks))
            for trial, own in zip(trials, thin, strict=True)
        ],
        "y": [rounded_all(point.value for point in own) for own in thin],
    }


def told(value: object) -> str | float | int | bool | None:
    """A parameter's value as a label has room for."""
    if value is None or isinstance(value, (bool, int)):
        return value
    return rounded(value, 3) if isinstance(value, float) else str(value)[:MAX_TEXT_LENGTH]
