"""The best values of several jobs so far, as one figure for Plotly. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from service.api.figures.axes import Figure, layout_of, literal
from service.domain import Direction, Phase, TrialState
from service.store.repositories import TrialSpending

Axis: TypeAlias = Literal["trials", "seconds", "device-seconds"]
TITLES: dict[Axis, str] = {
    "trials": "ended trials of each side",
    "seconds": "seconds since each job started",
    "device-seconds": "device-seconds that each side trained",
}
COLOURS = ("#3b82d6", "#d9780f", "#1f9d6b", "#9a6ee0", "#dc4a41", "#8a7a1d")
"""Colours of the jobs; the page's letters have the same. They hold on light and dark grounds."""
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x")
"""Symbols of the jobs, for whom colours do not tell them apart."""
SIDES = ((Phase.SEARCH, "solid", ""), (Phase.BASELINE, "dot", ", baseline"))


@dataclass(frozen=True, slots=True)
class DrawnJob:
    """A job as the chart needs it."""

    letter: str
    started_at: datetime | None
    num_ranks: int
    """Ranks of a trial."""
    optimizer: str
    """The optimizer that the search tunes, as people call it."""
    trials: Sequence[TrialSpending]
    """The trials in the order in which they ended."""


def best_so_far_of(jobs: Sequence[DrawnJob], *, metric: str, direction: Direction, axis: Axis) -> Figure:
    """The best value of each job's search so far, and dotted that of its baselines: over their ended trials, over the
    time since the job started, or over the device time that the side has spent."""
    data: list[Figure] = []
    values: list[float] = []
    for place, job in enumerate(jobs):
        for phase, dash, told in SIDES:
            line = _line(job, phase, direction, axis)
            if not line:
                continue
            values += [value for _, value in line]
            name = literal(f"{job.letter}: {job.optimizer}" if not told else f"{job.letter}{told}")
            data.append(
                {
                    "type": "scatter",
                    "mode": "lines+markers",
                    "name": name,
                    "meta": {"job": job.letter, "role": phase.value},
                    "x": [x for x, _ in line],
                    "y": [y for _, y in line],
                    "line": {"shape": "hv", "width": 2.5 if not told else 1.5, "color": COLOURS[place], "dash": dash},
                    "marker": {"symbol": SYMBOLS[place], "size": 7 if not told else 5, "color": COLOURS[place]},
                    "hovertemplate": f"{name}<br>%{{x:.5~g}}: %{{y:.4g}}<extra></extra>",
                }
            )
    layout = layout_of(x_title=TITLES[axis], metric=metric, values=values)
    layout["xaxis"]["rangemode"] = "tozero"
    return {"data": data, "layout": layout}


def _line(job: DrawnJob, phase: Phase, direction: Direction, axis: Axis) -> list[tuple[float, float]]:
    """The points at which the best value of a side became better, and the point at which the side ended."""
    line: list[tuple[float, float]] = []
    count, spent, x = 0, 0.0, 0.0
    for trial in job.trials:
        if trial.phase is not phase:
            continue
        count += 1
        spent += trial.spent_seconds * job.num_ranks
        since = 0.0 if job.started_at is None else (trial.finished_at - job.started_at).total_seconds()
        x = {"trials": float(count), "seconds": since, "device-seconds": spent}[axis]
        value = trial.value if trial.state is TrialState.COMPLETED else None
        if value is None or not math.isfinite(value):
            continue
        if not line or direction.is_better(value, than=line[-1][1]):
            line.append((x, value))
    if line and x > line[-1][0]:
        line.append((x, line[-1][1]))
    return line
