"""Places of a parameter's values along an axis: on the scale on which it is searched, from 0 to 1, with its ticks."""

from __future__ import annotations

import math
from collections.abc import Sequence

from search_spaces import Categorical, Float, Integer, Scalar
from search_spaces.parameters import IntegerScale, is_same
from service.api.figures.axes import Figure, literal, log_ticks
from service.evidence.insights import ParameterInsight

MAX_TICKS = 6
"""Labels of one axis of several side by side, by judgement."""
SPREAD = 0.6
"""The part of a choice's own stretch of the axis over which its trials are spread: they would lie on each other."""


class Positions:
    """The axis of one parameter."""

    def __init__(self, parameter: ParameterInsight) -> None:
        self._parameter = _as_searched(parameter)
        self.title = literal(parameter.name)

    def of(self, value: Scalar, *, of_trial: int | None = None) -> float | None:
        """The place of a value; None: it is none of the parameter's.

        Args:
            of_trial: the number of the trial that had it: those of one choice are spread.
        """
        if not isinstance(self._parameter, Categorical):
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            return self._parameter.to_unit(value) if is_number else None  # type: ignore[arg-type]  # as just asked
        if not any(is_same(choice, value) for choice in self._parameter.choices):
            return None
        shift = 0.0 if of_trial is None else (of_trial * (math.sqrt(5) - 1) / 2) % 1 - 0.5
        return self._parameter.to_unit(value) + shift * SPREAD / len(self._parameter.choices)

    def axis(self) -> Figure:
        """The axis as Plotly is told it."""
        ticks = self._ticks()
        return {
            "title": {"text": self.title, "standoff": 10},
            "range": [-0.03, 1.03],
            "zeroline": False,
            "automargin": True,
            "tickmode": "array",
            "tickvals": [place for place, _ in ticks],
            "ticktext": [text for _, text in ticks],
        }

    def _ticks(self) -> list[tuple[float, str]]:
        parameter = self._parameter
        if isinstance(parameter, Categorical):
            return [(parameter.to_unit(choice), literal(str(choice))) for choice in parameter.choices]
        inside = [value for value in _round_values(parameter) if parameter.low <= value <= parameter.high]
        if len(inside) < 2:
            inside = [parameter.low, parameter.high]
        stride = math.ceil(len(inside) / MAX_TICKS)
        return [(parameter.to_unit(value), f"{value:g}") for value in inside[::stride]]


def _as_searched(parameter: ParameterInsight) -> Float | Integer | Categorical:
    if parameter.scale is None or parameter.low is None or parameter.high is None:
        return Categorical(parameter.name, tuple(choice.value for choice in parameter.choices))
    if parameter.kind == Integer.kind:
        scale: IntegerScale = "log" if parameter.scale == "log" else "linear"
        return Integer(parameter.name, round(parameter.low), round(parameter.high), scale=scale)
    return Float(parameter.name, parameter.low, parameter.high, scale=parameter.scale)  # type: ignore[arg-type]


def _round_values(parameter: Float | Integer) -> Sequence[float]:
    """Values that people read easily, evenly over the range on its scale."""
    low, high = float(parameter.low), float(parameter.high)
    if parameter.scale == "log":
        return log_ticks(low, high)
    if parameter.scale == "reverse_log":
        return sorted(round(1 - value, 12) for value in log_ticks(1 - high, 1 - low))
    span = high - low
    if span <= 0:
        return [low]
    step = 10 ** math.floor(math.log10(span / 3))
    step *= next(factor for factor in (1, 2, 5, 10) if span / (factor * step) <= MAX_TICKS)
    if isinstance(parameter, Integer):
        step = max(1, round(step))
    first = math.ceil(low / step - 1e-9)
    return [round(step * (first + index), 12) for index in range(math.floor(high / step + 1e-9) - first + 1)]
