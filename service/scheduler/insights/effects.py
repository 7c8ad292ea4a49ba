"""The change of a measured value with one setting: by the model of the search, and by trials that hardly differ
otherwise.

The model is `curve_model`, as in `auto`, fitted to the trials of any sampler. Its interval is for the smooth part of
the value, without the luck of seeds. The best trial was chosen partly for its luck; like that of all others, this luck
is pulled towards the mean. `python -m tests.benchmarks.answers.insights` measures how often the interval contains the
truth.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from search_spaces import Scalar, SearchSpace
from service.evidence.comparison import student_t
from service.evidence.comparison.paired import MIN_SEEDS
from service.evidence.luck.searched_side import INACTIVE
from service.evidence.prices import RelativeChange
from service.scheduler.insights.compared import EndedTrial
from service.scheduler.insights.early_late import Curve
from service.scheduler.policy.searching.curve_model import CurveModel, Rows
from service.scheduler.policy.searching.encoding import Encoding
from service.scheduler.policy.searching.scaling import Scale
from service.specification.search.pauses import PAUSE_SHARES

CONFIDENCE = 0.9
"""Confidence of the intervals, by judgement: they are hints during a search, not its evidence, which has 95%."""
MIN_FREEDOM = 2
"""Degrees of freedom of a model, at least."""


@dataclass(frozen=True, slots=True)
class Observed:
    """The measurements of a trial, during its training and at its end."""

    parameters: Mapping[str, Scalar]
    points: Sequence[tuple[float, float]]
    """Shares of its training and the values there; NaN: it diverged."""


def observed_objective(trial: EndedTrial, curve: Curve) -> Observed | None:
    """The objective of a compared trial: at its end, or where it was stopped, or NaN because it diverged; None:
    unknown.

    Args:
        curve: the curve of a trial that completed; empty: unknown.
    """
    if trial.has_diverged:
        return Observed(trial.parameters, [(1.0, math.nan)])
    if trial.value is None or trial.progress <= 0:
        return None
    points = [(1.0 if trial.has_value else trial.progress, trial.value)]
    end = curve[-1][0] if curve else 0
    early = next((point for point in curve if PAUSE_SHARES[0] * end <= point[0] < end), None)
    if trial.has_value and early is not None and early[1] is not None:
        points.insert(0, (early[0] / end, early[1]))
    return Observed(trial.parameters, points)


class SideModel:
    """The value that a side's trials have, as a function of their parameters."""

    def __init__(
        self,
        space: SearchSpace,
        observed: Sequence[Observed],
        *,
        is_minimised: bool,
        only: Collection[str] | None = None,
    ) -> None:
        """Fits the model.

        Args:
            observed: what several trials measured.
            only: the names of the parameters that the value can depend on; None: all.
        """
        self._encoding = Encoding(space)
        names = [space.parameters[indices[0]].name for indices in space.dimensions()]
        self._left_out = frozenset(() if only is None else set(names) - set(only))
        self._ignored = np.array([name in self._left_out for name in names], dtype=bool)
        points = [(index, *point) for index, one in enumerate(observed) for point in one.points]
        table = np.array(points, dtype=float)
        self._scale = Scale(table[:, 2], is_minimised=is_minimised)
        distance = np.log(np.maximum(table[:, 1], 1e-6)) / math.log(PAUSE_SHARES[0])
        rows = Rows(table[:, 0].astype(np.int64), distance, self._scale(table[:, 2]))
        vectors = np.array([self._vector(one.parameters) for one in observed])
        model = CurveModel(self._encoding)
        model.fit(vectors, rows)
        self._posterior = model.condition(vectors, rows)
        self._space, self._num_trials = space, len(observed)

    def _vector(self, parameters: Mapping[str, Scalar]) -> np.ndarray:
        vector = self._encoding.encode(parameters)
        return np.where(self._ignored, INACTIVE, vector)

    def change(self, best: Mapping[str, Scalar], other: Mapping[str, Scalar]) -> RelativeChange | None:
        """The change from one config to another; None: it is not finite."""
        base, vector = self._vector(best), self._vector(other)
        # The model's hyperparameters are the most likely ones; with few trials per parameter, others are nearly as
        # likely.
        num_counted = sum(one.name not in self._left_out for one in self._space.active(best))
        freedom = max(MIN_FREEDOM, self._num_trials - num_counted - 1)
        mean, deviation = self._posterior.difference(vector, base)
        at = float(self._posterior.final(base[None])[0][0])
        reach = student_t.quantile(0.5 * (1 + CONFIDENCE), freedom) * deviation
        scaled = at + np.array([0.0, mean, mean - reach, mean + reach])
        before, *after = (float(value) for value in self._scale.back(scaled))
        return shares_of(before, after, num_trials=self._num_trials)


def shares_of(before: float, after: Sequence[float], *, num_trials: int) -> RelativeChange | None:
    """The change to a value, and to the ends of its interval in either order, as shares; None: it has no shares."""
    if not before or not all(math.isfinite(value) for value in (before, *after)):
        return None
    share, *ends = ((value - before) / abs(before) for value in after)
    return RelativeChange(share, min(*ends, share), max(*ends, share), num_trials)


def measured_change(best: Mapping[int, float], other: Mapping[int, float]) -> RelativeChange | None:
    """The mean difference of two configs' values with the same new seeds, so that both have the same luck of each seed;
    None: too few seeds.

    The value from the search does not count: the best trial's was lucky, and the seed that all trials share shifts them
    all.

    Args:
        best: by seed.
        other: by seed.
    """
    seeds = [seed for seed in best if seed in other]
    if len(seeds) < MIN_SEEDS:
        return None
    differences = [other[seed] - best[seed] for seed in seeds]
    before, difference = statistics.fmean(best[seed] for seed in seeds), statistics.fmean(differences)
    spread = statistics.stdev(differences) / math.sqrt(len(seeds))
    reach = student_t.quantile(0.5 * (1 + CONFIDENCE), len(seeds) - 1) * spread
    after = before + difference
    return shares_of(before, (after, after - reach, after + reach), num_trials=2 * len(seeds))
