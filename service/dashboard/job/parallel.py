"""Parallel coordinates as plain values: an axis for each parameter of a job, and a column of its trials' values.

Columns, not rows: ten thousand trials of ten parameters are 1 MB of JSON, and would be three times that as rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal, TypeAlias

from search_spaces import Categorical, Float, Integer, Parameter, Scalar, SearchSpace
from search_spaces.parameters import is_same
from service.api.figures import axis_type
from service.domain import Direction, FailureReason, Side, TrialState
from service.store.repositories import DrawnTrials

Scale: TypeAlias = Literal["linear", "log", "reverse_log"]


@dataclass(frozen=True, slots=True)
class Axis:
    """The axis of a parameter: a range of numbers on a scale, or choices."""

    name: str
    scale: Scale = "linear"
    low: float | None = None
    """None: it has choices."""
    high: float | None = None
    choices: tuple[Scalar, ...] = ()
    """Empty: it is a range."""


def axes_of(spaces: Mapping[Side, SearchSpace]) -> list[Axis]:
    """An axis for each parameter of a job's sides, in the order of their spaces.

    A name that stands for several parameters, of several sides or under several conditions, has one axis for all.
    """
    of_name: dict[str, list[Parameter]] = {}
    for space in spaces.values():
        for parameter in space.parameters:
            of_name.setdefault(parameter.name, []).append(parameter)
    return [_axis(name, parameters) for name, parameters in of_name.items()]


def _axis(name: str, parameters: Sequence[Parameter]) -> Axis:
    choices: list[Scalar] = []
    ranges: list[Float | Integer] = []
    for parameter in parameters:
        if isinstance(parameter, Categorical):
            choices += [choice for choice in parameter.choices if not any(is_same(choice, known) for known in choices)]
        else:
            ranges.append(parameter)
    numbers = [choice for choice in choices if isinstance(choice, int | float) and not isinstance(choice, bool)]
    if not ranges or len(numbers) < len(choices):
        return Axis(name, choices=tuple(choices))
    low = min([*numbers, *(parameter.low for parameter in ranges)])
    high = max([*numbers, *(parameter.high for parameter in ranges)])
    scales: set[Scale] = {parameter.scale for parameter in ranges}
    scale = scales.pop() if len(scales) == 1 else "linear"
    return Axis(name, scale="linear" if scale == "log" and low <= 0 else scale, low=low, high=high)


@dataclass(frozen=True, slots=True)
class Columns:
    """Trials as columns."""

    axes: Sequence[Axis]
    direction: Direction
    value_scale: Literal["linear", "log"]
    numbers: list[int]
    phases: list[str]
    states: list[str]
    """State of each trial; `diverged` for one that diverged."""
    values: list[float | None]
    parameters: list[list[Scalar]]
    """Values by axis; None: the trial does not have the parameter."""

    def json(self, *, metric: str, num_unfinished_before: int) -> str:
        """The JSON that the page's script reads.

        Args:
            metric: of the first objective.
            num_unfinished_before: trials with lower numbers that go on, and so may change.
        """
        told = {
            "metric": metric,
            "direction": self.direction,
            "value_scale": self.value_scale,
            "axes": [asdict(axis) for axis in self.axes],
            "unfinished_before": num_unfinished_before,
            "numbers": self.numbers,
            "phases": self.phases,
            "states": self.states,
            "values": self.values,
            "parameters": self.parameters,
        }
        return json.dumps(told, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def columns_from(trials: DrawnTrials, axes: Sequence[Axis], *, direction: Direction) -> Columns:
    """The columns of trials. The scale of their values is that of the charts, by those that completed."""
    completed = [
        value
        for state, value in zip(trials.states, trials.values, strict=True)
        if state is TrialState.COMPLETED and value is not None
    ]
    return Columns(
        axes=axes,
        direction=direction,
        value_scale=axis_type(completed),
        numbers=trials.numbers,
        phases=[phase.value for phase in trials.phases],
        states=[
            "diverged" if reason is FailureReason.DIVERGED else state.value
            for state, reason in zip(trials.states, trials.reasons, strict=True)
        ],
        values=trials.values,
        parameters=[[values.get(axis.name) for values in trials.parameters] for axis in axes],
    )
