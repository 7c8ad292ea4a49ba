"""The charts of a job: what is drawn, in which colours, and which trials are."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol, TypeVar

from service.api.figures.axes import Figure, layout_of, literal, value_axis
from service.api.figures.trials import PlotTrial, Point
from service.domain import Direction, FailureReason, Phase, TrialState

Axis = Literal["trials", "seconds"]

MAX_POINTS = 300
"""Points drawn of one curve; more cannot be told apart on a screen."""
MAX_CURVES = 100
"""Curves drawn in one chart: beyond, the best half and an even choice of the rest."""
PHASE_COLOURS = {Phase.SEARCH: "#3b82d6", Phase.BASELINE: "#d9780f", Phase.CONFIRMATION: "#9a6ee0"}
FURTHER_BASELINES = ("#b8578f", "#8a7a1d", "#5d8a3a")
"""Colours of the baselines beside the first."""
PHASE_DASHES = {Phase.SEARCH: "solid", Phase.BASELINE: "dot", Phase.CONFIRMATION: "dash"}
PRUNED_COLOUR = "#8b949e"
DIVERGED_COLOUR = "#dc4a41"
FRONT_COLOUR = "#1f9d6b"


def best_so_far(
    trials: Sequence[PlotTrial],
    *,
    metric: str,
    direction: Direction,
    labels: Mapping[str, str],
    axis: Axis = "trials",
) -> Figure:
    """The best value reached by the search and each baseline, over their finished trials or over the job's time.

    The confirmation seeks nothing and has no line. Over trials, each side is counted by itself: the lines compare equal
    numbers of trials.

    Args:
        labels: name of each side in the legend.
    """
    finished = [
        trial
        for trial in trials
        if trial.state.is_final and trial.finished_after is not None and trial.phase is not Phase.CONFIRMATION
    ]
    finished.sort(key=lambda trial: (trial.finished_after or 0.0, trial.number))
    end = max((trial.finished_after or 0.0 for trial in finished), default=0.0)
    data: list[Figure] = []
    values: list[float] = []
    colours = _colours(labels, finished)
    for group in colours:
        own = [trial for trial in finished if trial.group == group]
        placed = [
            (float(position) if axis == "trials" else trial.finished_after or 0.0, trial)
            for position, trial in enumerate(own, start=1)
        ]
        completed = [
            (x, trial, trial.value)
            for x, trial in placed
            if trial.state is TrialState.COMPLETED and trial.value is not None and math.isfinite(trial.value)
        ]
        if not completed:
            continue
        phase, colour = own[0].phase, colours[group]
        values += [value for _, _, value in completed]
        label = literal(labels.get(group, group))
        line = _best_line([(x, value) for x, _, value in completed], direction)
        line.append((float(len(own)) if axis == "trials" else end, line[-1][1]))
        dots = thin([(x, value) for x, _, value in completed])
        numbers = {(x, value): trial.number for x, trial, value in completed}
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": label,
                "legendgroup": group,
                "meta": {"role": phase.value},
                "x": [x for x, _ in line],
                "y": [y for _, y in line],
                "line": {"shape": "hv", "width": 2.5, "color": colour, "dash": PHASE_DASHES[phase]},
                "hovertemplate": f"{label}<br>best found %{{y:.4g}}<extra></extra>",
            }
        )
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": f"{label} trials",
                "legendgroup": group,
                "showlegend": False,
                "meta": {"role": phase.value},
                "x": [x for x, _ in dots],
                "y": [y for _, y in dots],
                "customdata": [numbers[x, y] for x, y in dots if y is not None],
                "marker": {"size": 6, "color": colour, "opacity": 0.55},
                "hovertemplate": f"<b>#%{{customdata}}</b> {label}<br>%{{y:.4g}}<extra></extra>",
            }
        )
    title = "finished trials of each side" if axis == "trials" else "seconds since the job started"
    layout = layout_of(x_title=title, metric=metric, values=values)
    layout["xaxis"]["rangemode"] = "tozero"
    if axis == "trials" and len(finished) <= 10:
        layout["xaxis"]["dtick"] = 1  # Plotly would set ticks at halves
    return {"data": data, "layout": layout}


def learning_curves(
    trials: Sequence[PlotTrial],
    *,
    metric: str,
    direction: Direction,
    labels: Mapping[str, str],
    over: Literal["step", "examples"] = "step",
) -> Figure:
    """The objective of every trial over its steps, or the examples that it has seen; a cross ends the curve of a trial
    that diverged.
    """
    chosen = choose_curves(trials, direction=direction)
    data: list[Figure] = []
    shown: set[str] = set()
    values: list[float] = []
    for trial in chosen:
        points = thin(trial.points)
        values += [y for _, y in points if y is not None and math.isfinite(y)]
        role, label, colour = _role(trial, labels)
        told = f"{_hover_text(trial, labels)}<br>{over} %{{x}}: %{{y:.4g}}"
        finite = [(index, point) for index, point in enumerate(points) if _finite(point[1]) is not None]
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers" if sum(y is not None for _, y in points) == 1 else "lines",
                "name": label,
                "legendgroup": role,
                "showlegend": role not in shown,
                "meta": {"role": role, "number": trial.number},
                "x": [x for x, _ in points],
                "y": [_finite(y) for _, y in points],
                "line": {"width": 1.5, "color": colour, "dash": PHASE_DASHES[trial.phase]},
                "marker": {"size": 5, "color": colour},
                "opacity": 0.6 if role == "pruned" else 0.9,
                "hovertemplate": f"{told}<extra></extra>",
            }
        )
        shown.add(role)
        if trial.reason is FailureReason.DIVERGED and finite:
            index, (x, y) = finite[-1]
            data[-1]["text"] = ["; then it diverged" if place == index else "" for place in range(len(points))]
            data[-1]["hovertemplate"] = f"{told}%{{text}}<extra></extra>"
            data.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": "diverged",
                    "legendgroup": role,
                    "showlegend": False,
                    "meta": {"role": role, "number": trial.number},
                    "x": [x],
                    "y": [y],
                    "marker": {"symbol": "x", "size": 9, "color": DIVERGED_COLOUR},
                    "hoverinfo": "skip",  # the curve ends in the same point, and tells of it
                }
            )
    layout = layout_of(x_title=over, metric=metric, values=values)
    layout["xaxis"]["rangemode"] = "tozero"
    layout["legend"]["groupclick"] = "togglegroup"
    return {"data": data, "layout": layout}


def trade_off(
    trials: Sequence[PlotTrial],
    values: Mapping[int, tuple[float | None, float | None]],
    front: Sequence[int],
    *,
    metrics: tuple[str, str],
    labels: Mapping[str, str],
) -> Figure:
    """Another objective against the first, a point for each completed trial of search and baselines; those of the
    front are ringed.

    Args:
        values: (other objective, first one) by the trial's number; None where it has none.
        front: numbers of the trials that no other one betters in every objective of the job.
        metrics: the metric of the other objective, and that of the first.
    """
    data: list[Figure] = []
    drawn: list[tuple[float, float]] = []
    searched = [trial for trial in trials if trial.phase is not Phase.CONFIRMATION]
    for group, colour in _colours(labels, searched).items():
        own = [trial for trial in searched if trial.group == group and trial.state is TrialState.COMPLETED]
        points = {}
        for trial in own:
            x, y = (_finite(value) for value in values.get(trial.number, (None, None)))
            if x is not None and y is not None:
                points[trial.number] = x, y
        if not points:
            continue
        drawn += points.values()
        label = literal(labels.get(group, group))
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": label,
                "meta": {"role": own[0].phase.value},
                "x": [x for x, _ in points.values()],
                "y": [y for _, y in points.values()],
                "customdata": list(points),
                "text": [_hover_text(trial, labels) for trial in own if trial.number in points],
                "marker": {"size": 8, "color": colour, "opacity": 0.75},
                "hovertemplate": "%{text}<br>%{x:.4g}, %{y:.4g}<extra></extra>",
            }
        )
    ringed = [(number, *values[number]) for number in front if number in values]
    if ringed:
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": "front",
                "meta": {"role": "front"},
                "x": [x for _, x, _ in ringed],
                "y": [y for _, _, y in ringed],
                "marker": {"symbol": "circle-open", "size": 15, "color": FRONT_COLOUR, "line": {"width": 2}},
                "hoverinfo": "skip",
            }
        )
    layout = layout_of(x_title=literal(metrics[0]), metric=metrics[1], values=[y for _, y in drawn])
    layout["xaxis"] |= value_axis([x for x, _ in drawn])
    return {"data": data, "layout": layout}


class Ranked(Protocol):
    """A trial by which curves are chosen."""

    @property
    def number(self) -> int: ...
    @property
    def state(self) -> TrialState: ...
    @property
    def value(self) -> float | None: ...


RankedTrial = TypeVar("RankedTrial", bound=Ranked)


def choose_curves(trials: Sequence[RankedTrial], *, direction: Direction, limit: int = MAX_CURVES) -> list[RankedTrial]:
    """At most `limit` of the trials, by number: the best half of that many, and an even choice of the others."""
    if len(trials) <= limit:
        return sorted(trials, key=lambda trial: trial.number)
    ranked = sorted(trials, key=_rank(direction))
    num_best = limit // 2
    rest = sorted(ranked[num_best:], key=lambda trial: trial.number)
    num_rest = limit - num_best
    even = [rest[index * len(rest) // num_rest] for index in range(num_rest)]
    return sorted([*ranked[:num_best], *even], key=lambda trial: trial.number)


def thin(points: Sequence[Point], limit: int = MAX_POINTS) -> list[Point]:
    """At most `limit` of the points (`limit` >= 4): the ends, and the lowest and highest of equal stretches between.

    Keeping the extremes rather than every n-th point keeps spikes; a stretch without a finite value keeps a gap.
    """
    if len(points) <= limit:
        return list(points)
    inner, num_stretches = points[1:-1], (limit - 2) // 2
    kept: list[Point] = [points[0]]
    for index in range(num_stretches):
        stretch = inner[index * len(inner) // num_stretches : (index + 1) * len(inner) // num_stretches]
        finite = [(y, position) for position, (_, y) in enumerate(stretch) if y is not None and math.isfinite(y)]
        positions = {min(finite)[1], max(finite)[1]} if finite else {0}
        kept += [stretch[position] for position in sorted(positions)]
    return [*kept, points[-1]]


def _rank(direction: Direction) -> Callable[[Ranked], tuple[bool, float, int]]:
    """Sort key: completed before others, then by value from the best, then by number."""
    sign = 1.0 if direction is Direction.MINIMIZE else -1.0

    def key(trial: Ranked) -> tuple[bool, float, int]:
        value = _finite(trial.value)
        return trial.state is not TrialState.COMPLETED, math.inf if value is None else sign * value, trial.number

    return key


def _best_line(points: Sequence[tuple[float, float]], direction: Direction) -> list[tuple[float, float]]:
    """The points at which the best value changed, each with the new one."""
    line = [points[0]]
    for x, y in points[1:]:
        if direction.is_better(y, line[-1][1]):
            line.append((x, y))
    return line


def _role(trial: PlotTrial, labels: Mapping[str, str]) -> tuple[str, str, str]:
    """(group in the legend, its label, colour) of a trial's curve."""
    if trial.reason is FailureReason.DIVERGED:
        return "diverged", "diverged", DIVERGED_COLOUR
    if trial.state in (TrialState.PRUNED, TrialState.CANCELLED, TrialState.FAILED):
        return "pruned", "ended early", PRUNED_COLOUR
    return trial.group, literal(labels.get(trial.group, trial.group)), _colours(labels, [trial])[trial.group]


def _colours(labels: Mapping[str, str], trials: Sequence[PlotTrial]) -> dict[str, str]:
    """The colour of each group that has trials, in the order of `labels`."""
    phases = {trial.group: trial.phase for trial in trials}
    order = [name for name in labels if name in phases] + [name for name in phases if name not in labels]
    baselines = [name for name in labels if name not in (Phase.SEARCH, Phase.CONFIRMATION)]
    found = {}
    for name in order:
        place = baselines.index(name) if name in baselines else 0
        is_further = phases[name] is Phase.BASELINE and place > 0
        found[name] = (
            FURTHER_BASELINES[(place - 1) % len(FURTHER_BASELINES)] if is_further else PHASE_COLOURS[phases[name]]
        )
    return found


def _hover_text(trial: PlotTrial, labels: Mapping[str, str]) -> str:
    """The words about a trial; part of a curve's template, as Plotly takes `%{text}` for each point alone."""
    state = f"{trial.state} ({trial.reason})" if trial.reason else str(trial.state)
    label = literal(labels.get(trial.group, trial.group))
    of = "" if trial.confirms is None else f" of #{trial.confirms}"
    lines = [f"<b>#{trial.number}</b> {label}{of}, {literal(state)}"]
    for name, value in list(trial.parameters.items())[:8]:
        shown = f"{value:.3g}" if isinstance(value, float) else str(value)
        lines.append(f"{literal(name)} = {literal(shown[:60])}")
    return "<br>".join(lines)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
