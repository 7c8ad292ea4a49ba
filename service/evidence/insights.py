"""Insights into a job's hyperparameters: importance, direction, safe ranges, maps; plain values, stored as
JSON.

Trials are compared by their *standing*: 1 is the best of a side, 0 the worst. Completed trials stand by their value;
below them the pruned ones, those that came further first; below these the diverged ones. Trials that say nothing of
the objective (lost, out of memory, cancelled) are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from search_spaces import Scalar
from search_spaces.parameters import is_same
from service.domain import Direction, Side
from service.evidence.prices import CheaperSetting

MIN_TRIALS = 12
"""Compared trials of a side, or with a parameter, below which nothing is said: among fewer, any parameter seems to
matter."""


class Trend(StrEnum):
    """The direction in which a number is better."""

    HIGHER = "higher"
    LOWER = "lower"
    BETWEEN = "between"
    """Higher is better up to a value, and beyond it lower is."""
    NONE = "none"
    """The trials show no direction."""


@dataclass(frozen=True, slots=True)
class Importance:
    """The importance of one parameter: its share in what made trials good."""

    share: float
    """The parameter's share among all of the side, 0 to 1; 0 if it cannot be told from chance."""
    low: float
    """The lower end of the interval that holds the share in 8 of 10 resamplings of the trials."""
    high: float
    """The upper end of that interval."""
    is_beyond_chance: bool
    """True: values dealt to the trials at random seem as important in fewer than 1 of 20 such side's parameters."""


@dataclass(frozen=True, slots=True)
class DivergedBeyond:
    """A value beyond which trials diverged, clearly more often than before it."""

    value: float
    """The first that counts as beyond."""
    num_trials: int
    """Trials beyond it."""
    num_diverged: int
    """The number of the trials that diverged."""


@dataclass(frozen=True, slots=True)
class SafeRange:
    """The range that the good trials of a side had."""

    low: float
    """The lower end of the range."""
    high: float
    """The upper end of the range."""
    num_trials: int
    """The good trials."""
    worst_value: float
    """The objective of the worst of them."""
    diverged_below: DivergedBeyond | None = None
    """None: lower values did not diverge more often."""
    diverged_above: DivergedBeyond | None = None
    """None: higher values did not diverge more often."""


@dataclass(frozen=True, slots=True)
class ChoiceInsight:
    """One choice of a parameter without order."""

    value: Scalar
    """The choice."""
    num_trials: int
    """Compared trials that had it."""
    num_diverged: int
    """The number of the trials that diverged."""
    standing: float | None
    """The median of theirs; null: there were none."""
    best_value: float | None
    """The best objective that one of them reached; null: none completed."""


@dataclass(frozen=True, slots=True)
class ParameterInsight:
    """Insights into one parameter, from the trials of a side."""

    name: str
    """The name of the parameter."""
    kind: str
    """`float`, `integer` or `categorical`."""
    num_trials: int
    """Compared trials that had it: under conditions, fewer than the side has."""
    scale: str | None = None
    """`linear`, `log` or `reverse_log`; null: its values have no order."""
    low: float | None = None
    """The lower bound of what was searched; null: its values have no order."""
    high: float | None = None
    """The upper bound."""
    active_when: list[dict[str, list[Scalar]]] = field(default_factory=list)
    """The trials that had it: those with, by name of another parameter, one of these values, by any of the entries.
    Empty: all had it."""
    importance: Importance | None = None
    """Null: too few trials to say."""
    correlation: float | None = None
    """Rank correlation of its value with the standing, -1 to 1: above 0, higher values did better. Null: too few
    trials, or values without order."""
    trend: Trend | None = None
    """Null like `correlation`."""
    turns_at: float | None = None
    """The value about which trials did best, with the trend `between`."""
    safe_range: SafeRange | None = None
    """Null like `correlation`, or no trial completed."""
    choices: list[ChoiceInsight] = field(default_factory=list)
    """The choices of a parameter whose values have no order."""

    @property
    def is_beyond_chance(self) -> bool:
        """True if it is told from a parameter that does not matter."""
        return self.importance is not None and self.importance.is_beyond_chance

    def is_had_by(self, parameters: Mapping[str, Any]) -> bool:
        """True if a trial with these values had it."""
        if self.name not in parameters:
            return False
        return not self.active_when or any(
            all(any(is_same(parameters.get(name), value) for value in values) for name, values in conditions.items())
            for conditions in self.active_when
        )

    @property
    def label(self) -> str:
        """The parameter's name, and in brackets the trials that had it: one name can stand for several ranges."""
        return f"{self.name} ({self.condition})" if self.condition else self.name

    @property
    def condition(self) -> str:
        """The trials that had it; empty: all."""
        told = [
            " and ".join(f"{name} {', '.join(str(value) for value in values)}" for name, values in conditions.items())
            for conditions in self.active_when
        ]
        return "; ".join(told)


@dataclass(frozen=True, slots=True)
class ParameterMap:
    """The standing over two parameters, smoothed, on a grid."""

    x: int
    """The index of the parameter across, in `SideInsights.parameters`."""
    y: int
    """The index of the parameter upwards."""
    x_values: list[Scalar]
    """The columns of the grid."""
    y_values: list[Scalar]
    """The rows of the grid."""
    standing: list[list[float | None]]
    """The standing by row and column; null: no trial was near."""

    def along(self, x: int, y: int) -> ParameterMap:
        """The same map with these of its two parameters across and upwards."""
        if (x, y) == (self.x, self.y):
            return self
        turned = [list(column) for column in zip(*self.standing, strict=True)]
        return ParameterMap(self.y, self.x, self.y_values, self.x_values, turned)


@dataclass(frozen=True, slots=True)
class EarlyLate:
    """The correlation of the objective early in a training with the objective at its end."""

    share: float
    """The share of the training at which the early values were measured."""
    num_trials: int
    """Trials that completed and were measured there: those that looked worst early may have been stopped, and count
    in neither."""
    correlation: float
    """Rank correlation of the early values with the last ones, -1 to 1."""
    low: float
    """The lower end of its 90% interval."""
    high: float
    """The upper end of that interval."""


@dataclass(frozen=True, slots=True)
class SideInsights:
    """Insights from the trials of the search, or of one baseline."""

    side: Side
    """`search`, or a baseline by its optimizer's name."""
    num_completed: int
    """Compared trials that completed."""
    num_pruned: int
    """Compared trials that were pruned."""
    num_diverged: int
    """Compared trials that diverged."""
    num_left_out: int
    """Trials that ended without information on the objective."""
    num_sampled: int
    """Compared trials that were analysed: a sample if there are many."""
    parameters: list[ParameterInsight]
    """The most important first."""
    maps: list[ParameterMap] = field(default_factory=list)
    """The maps of the pairs of the most important parameters."""
    early_late_correlation: EarlyLate | None = None
    """Null: too few trials completed after an early measurement."""
    priced_trial: int | None = None
    """The number of the trial with the best config, to which the prices refer. Null: there are no prices."""
    prices: list[CheaperSetting] = field(default_factory=list)
    """The prices of the settings that cost less than the best config's. Empty: it has none, or the shapes of the model
    are not known."""

    @property
    def num_trials(self) -> int:
        """Compared trials."""
        return self.num_completed + self.num_pruned + self.num_diverged

    @property
    def has_few_trials(self) -> bool:
        """True if they are too few to say anything."""
        return self.num_trials < MIN_TRIALS


@dataclass(frozen=True, slots=True)
class JobInsights:
    """Insights from the trials of a job, side by side."""

    metric: str
    """The metric of the objective that counts first; the others are not looked at."""
    direction: Direction
    """The direction in which it is better."""
    num_ended: int
    """Trials of search and baselines that had ended when this was computed."""
    sides: list[SideInsights]
    """The search first, then the baselines in their order."""

    def to_json(self) -> dict[str, Any]:
        """The insights as JSON-able values."""
        return asdict(self)


@cache
def _insights() -> TypeAdapter[JobInsights]:
    """Made when the first is read."""
    return TypeAdapter(JobInsights)


def insights_from_json(content: Mapping[str, Any]) -> JobInsights:
    """Stored insights; what they lack because they are older takes its default."""
    return _insights().validate_python(content)
