"""The trials of an `auto` search in the form that its model uses, and the rows that it is fitted to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr

from search_spaces import Scalar
from service.scheduler.policy.searching.curve_model import Posterior, Rows
from service.scheduler.policy.searching.encoding import Array
from service.scheduler.policy.searching.phase_search import SearchStatus
from service.scheduler.policy.searching.rungs import Rungs
from service.scheduler.policy.searching.scaling import Scale
from service.scheduler.policy.searching.trends import Points, kept_share, trends

EXPECTED_ERROR = 0.3
"""Standard deviation of the errors of predicted ends in a branch without finished trials, on the model's scale. By
judgement, knowing `stdlib_gpt` and `digits_convnet`, on which the errors of paused trials are 0.3 to 0.5 in the branch
with the most finished trials, and 0.7 to 1.1 in the other one."""
NUM_EXPECTED = 4
"""The number of finished trials of a branch whose errors count as much as that expectation; with fewer in all branches
together, only the model's own deviations count. By judgement."""


@dataclass(slots=True)
class ModelledTrial:
    number: int
    rounded: Mapping[str, Scalar]
    """Its config as the search would begin it, with floats of few digits."""
    vector: Array
    branch: tuple[float, ...]
    """The positions of the choices that activate other parameters, such as the member of a family; empty if there are
    none."""
    goal: int
    """The step at which it is paused next, or its last."""
    status: SearchStatus = SearchStatus.RUNNING
    curve: list[tuple[int, float]] = field(default_factory=list)
    early: Points = ()
    """The points up to the first rung, once the trial is there."""
    final: float | None = None
    failed: bool = False
    """Its parameters made it fail."""
    forgotten: bool = False
    """It teaches nothing (an error ended it early), or nothing new."""
    mean: float = 0.0
    """Its last expected final value, on the model's scale."""

    @property
    def reached(self) -> int:
        return self.curve[-1][0] if self.curve else 0


@dataclass(frozen=True, slots=True)
class ModelView:
    """The model's current view of the trials."""

    trials: list[ModelledTrial]
    """The trials that it knows, in the order of the arrays."""
    posterior: Posterior
    vectors: Array
    mean: Array
    deviation: Array
    """(n,) of final values, as the model states them."""
    error: Array
    """(n,) standard deviation, with the errors in the trial's branch (`branch_errors`)."""
    best: float | None
    """Best final value of a finished trial."""
    twins: frozenset[int]
    """Numbers of the paused trials whose ends are known."""

    @property
    def incumbent(self) -> float:
        """The value to improve on; before any trial is finished, that of an average config."""
        return float(np.median(self.mean)) if self.best is None else self.best

    @property
    def paused(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Indices of the paused trials whose ends are not known."""
        is_paused = [trial.status is SearchStatus.PAUSED and trial.number not in self.twins for trial in self.trials]
        return np.flatnonzero(is_paused)

    @property
    def chances(self) -> Array:
        """(n,), the probability of each to end better than the incumbent."""
        found: Array = ndtr((self.mean - self.incumbent) / self.deviation)
        return found


class ObservedPoint(NamedTuple):
    """A point of a curve that the model is shown."""

    trial: int
    """The index of the trial."""
    distance: float
    """The distance from its end, as `curve_model` counts it."""
    value: float
    """NaN: its parameters made it fail."""


def observed_points(trials: Sequence[ModelledTrial], ends: Mapping[int, float], rungs: Rungs) -> list[ObservedPoint]:
    """The points of these trials: for each its first rung, then its end if that is known, else the last measurement
    beyond the rung.

    Args:
        ends: known final values by number of the trial.
        rungs: where the trials pause.
    """
    points: list[ObservedPoint] = []
    for index, trial in enumerate(trials):
        early = rungs.at_first(trial.curve)
        if early is not None:
            points.append(ObservedPoint(index, rungs.distance(early[0]), early[1]))
        if trial.number in ends:
            points.append(ObservedPoint(index, 0.0, ends[trial.number]))
        elif early is not None and early[0] < trial.reached < rungs.end:
            step, value = trial.curve[-1]
            points.append(ObservedPoint(index, rungs.distance(step), value))
    return points


def rows_of(trials: Sequence[ModelledTrial], points: Sequence[ObservedPoint], *, is_minimised: bool) -> Rows:
    """The points on the model's scale, moved along their trends by the share that finished trials kept."""
    table = np.array(points)
    config, distance, values = table[:, 0].astype(np.int64), table[:, 1], table[:, 2]
    scale = Scale(values, is_minimised=is_minimised)
    targets, trend = scale(values), trends([trial.early for trial in trials], scale)
    # The row before a trial's end is its first rung.
    end_rows = np.flatnonzero((distance[1:] == 0.0) & np.isfinite(values[1:]) & (config[1:] == config[:-1])) + 1
    kept = kept_share(trend[config[end_rows]], targets[end_rows] - targets[end_rows - 1])
    return Rows(config, distance, targets + kept * distance * trend[config])


def branch_errors(
    trials: Sequence[ModelledTrial], finished: Sequence[ModelledTrial], errors: Callable[[], Array]
) -> Array:
    """(trials,) standard deviation of the errors of predicted ends in the branch of each trial; 0 if there is only one
    branch, or too few trials are finished.

    The mean of the squares of these errors and of `EXPECTED_ERROR`, which counts `NUM_EXPECTED` times, as does the mean
    of a variance under its conjugate prior.

    Args:
        trials: the trials whose branches are wanted.
        finished: the finished ones among them.
        errors: gives the errors (finished,) of the model's predictions of ends that are hidden from it; only called if
            they count.
    """
    if len(finished) < NUM_EXPECTED or len({trial.branch for trial in trials}) == 1:
        return np.zeros(len(trials))
    squares: dict[tuple[float, ...], list[float]] = {}
    for trial, error in zip(finished, errors(), strict=True):
        squares.setdefault(trial.branch, []).append(float(error) ** 2)
    expected = NUM_EXPECTED * EXPECTED_ERROR**2
    own = [squares.get(trial.branch, []) for trial in trials]
    return np.sqrt([(expected + sum(found)) / (NUM_EXPECTED + len(found)) for found in own])
