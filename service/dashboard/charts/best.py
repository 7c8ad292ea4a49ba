"""The best value that each side has found, over its finished trials and over time, as columns. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from service.dashboard.charts.columns import rounded, rounded_all
from service.domain import Direction, Phase, Side, TrialState
from service.store.repositories.of_trials.chart_rows import ChartTrial

MAX_DOTS = 300
"""Most dots of one side."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A trial of search or baselines that has ended."""

    number: int
    side: Side
    seconds: float
    """Time from the job's start to its end."""
    value: float | None
    """None: it did not complete, or ended with nothing that is finite."""


def finished_of(
    trials: Sequence[ChartTrial], sides: Mapping[int, Side], *, started_at: datetime | None
) -> list[Finished]:
    """The trials that have ended, in the order in which they did."""
    found = [
        Finished(
            trial.number,
            sides[trial.number],
            0.0 if started_at is None else (trial.finished_at - started_at).total_seconds(),
            trial.value if trial.state is TrialState.COMPLETED else None,
        )
        for trial in trials
        if trial.finished_at is not None and trial.state.is_final and trial.phase is not Phase.CONFIRMATION
    ]
    return sorted(found, key=lambda one: (one.seconds, one.number))


def side_columns(finished: Sequence[Finished], direction: Direction) -> dict[str, Any]:
    """A side's line and dots: each with place among its finished trials, seconds, value and number of the trial.

    A line has a point where the best value changed; its values are told in words, too, and so not rounded twice. Dots
    are the best and the worst of equal stretches, if there are more than can be told apart.
    """
    places = [(place, one, one.value) for place, one in enumerate(finished, start=1) if one.value is not None]
    line: list[tuple[int, Finished, float]] = []
    for place, one, value in places:
        if not line or direction.is_better(value, line[-1][2]):
            line.append((place, one, value))
    return {
        "count": len(finished),
        "end": rounded(finished[-1].seconds) if finished else 0,
        "line": {**_columns(line), "y": [value for _, _, value in line]},
        "dots": _columns(_thinned(places)),
    }


def changed_rows(finished: Sequence[Finished]) -> list[list[Any]]:
    """Trials that have ended since: number, side, seconds, value."""
    return [[one.number, one.side, rounded(one.seconds), one.value] for one in finished]


def _columns(points: Sequence[tuple[int, Finished, float]]) -> dict[str, list[Any]]:
    return {
        "n": [place for place, _, _ in points],
        "seconds": rounded_all(one.seconds for _, one, _ in points),
        "y": rounded_all(value for _, _, value in points),
        "number": [one.number for _, one, _ in points],
    }


def _thinned(points: list[tuple[int, Finished, float]]) -> list[tuple[int, Finished, float]]:
    if len(points) <= MAX_DOTS:
        return points
    num_stretches = MAX_DOTS // 2
    kept: list[tuple[int, Finished, float]] = []
    for index in range(num_stretches):
        stretch = points[index * len(points) // num_stretches : (index + 1) * len(points) // num_stretches]
        ends = {min(stretch, key=lambda each: each[2]), max(stretch, key=lambda each: each[2])}
        kept += sorted(ends, key=lambda each: each[0])
    return kept
