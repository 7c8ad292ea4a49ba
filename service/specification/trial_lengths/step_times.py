"""The times that a step takes with the configs of a job, for trials that are to train equally long.

The time of a step depends on few hyperparameters. It is measured with every choice and at both ends of every range of
these (`timed_configs`), and read between the ends for all other values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import Field, JsonValue

from search_spaces import Categorical, Float, Parameter, Scalar, SearchSpace
from search_spaces.parameters import is_active, is_same, sectioned
from search_spaces.validation import MAX_PARAMETERS
from service.described_model import MaxEntries, StrictModel
from service.domain import Side
from service.errors import InvalidInput

MAX_TIMED = 32
"""Most configs whose steps are timed for one job: `family` beside AdamW has ten."""
PERIODS = ("precondition_frequency", "statistics_frequency")
"""Parameters to whose inverse the time of a step is linear: a share of the steps costs more than the others."""


class StepTime(StrictModel):
    """The measured time of a step of one config of a side."""

    side: str = Field(max_length=100, examples=["search"])
    """`search`, or the optimizer of a baseline."""
    parameters: Annotated[dict[str, JsonValue], MaxEntries(MAX_PARAMETERS)] = Field(default_factory=dict)
    """The values on which the time depends, by name."""
    seconds: Annotated[float, Field(ge=1e-9, le=1e9)]
    """Seconds of a step, on average over whole refresh periods."""


class StepTimes:
    """The time of a step of any config of a job."""

    def __init__(self, spaces: Mapping[Side, SearchSpace], measured: Sequence[StepTime]) -> None:
        """Takes the measured times.

        Raises:
            InvalidInput: a config of `timed_configs` has none, or another one has.
        """
        self._spaces = dict(spaces)
        self._measured = {side: [one for one in measured if one.side == side] for side in spaces}
        wanted = [(side, timed_values(space, one)) for side, space in spaces.items() for one in timed_configs(space)]
        for side, values in wanted:
            if not any(_is_of(one, side, values) for one in measured):
                raise InvalidInput("step_times", f"lacks the time of {side} with {values!r}")
        for index, one in enumerate(measured):
            if not any(_is_of(one, side, values) for side, values in wanted):
                told = f"is of no config whose time is asked for, got {one.side} with {one.parameters!r}"
                raise InvalidInput(f"step_times[{index}]", told)
        self.least = min(one.seconds for one in measured)
        """The time of the quickest step."""

    def of(self, side: Side, parameters: Mapping[str, Scalar]) -> float:
        """The seconds of a step with these values: the mean of the measured times, weighted in each parameter by the
        distance to the ends of its range, for a period by that of the inverse."""
        space = self._spaces[side]
        weighted = [
            (_weight(space, parameters, one.parameters), one.seconds)
            for one in self._measured[side]
            if one.parameters.keys() == timed_values(space, parameters).keys()
        ]
        return math.fsum(weight * seconds for weight, seconds in weighted) / math.fsum(weight for weight, _ in weighted)


def timed_configs(space: SearchSpace) -> list[dict[str, Scalar]]:
    """Complete configs of a space between which the time of a step of any other one lies; all values on which it does
    not depend are the defaults."""
    found: list[dict[str, Scalar]] = [{}]
    names = _names_that_count(space)
    for parameter in space.parameters:
        values = _ends(parameter) if parameter.name in names else [parameter.default]
        found = [
            {**config, parameter.name: value} if is_active(parameter, config) else config
            for config in found
            for value in (values if is_active(parameter, config) else values[:1])
        ]
    return found


def timed_values(space: SearchSpace, parameters: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """The values of a config on which the time of a step depends."""
    names = _names_that_count(space)
    return {one.name: parameters[one.name] for one in space.active(parameters) if one.name in names}


def check_num_timed(spaces: Mapping[Side, SearchSpace], *, field: str) -> None:
    """Checks that few enough configs have to be timed.

    Raises:
        InvalidInput: names `field`.
    """
    num = sum(len(timed_configs(space)) for space in spaces.values())
    if num > MAX_TIMED:
        names = sorted({name for space in spaces.values() for name in _names_that_count(space)})
        raise InvalidInput(
            field,
            f"'seconds' needs the time of a step with {num} configs, at most {MAX_TIMED}: fix some of the parameters "
            f"on which it depends ({', '.join(names)})",
        )


def _names_that_count(space: SearchSpace) -> set[str]:
    """The parameters on which the time of a step may depend, and those that say if these are active."""
    found = {parameter.name for parameter in space.parameters if _counts(parameter)}
    for parameter in reversed(space.parameters):  # a condition names only parameters above it
        found |= parameter.when.keys() if parameter.name in found else set()
    return found


def _counts(parameter: Parameter) -> bool:
    """True if the time of a step may depend on a parameter: choices, integers, options of the workload, and how far
    factors may change before they are refreshed. Other numbers only weigh what is computed in any case."""
    section, name = sectioned(parameter.name)
    if section == "schedule" or (isinstance(parameter, Categorical) and len(parameter.choices) == 1):
        return False
    return not _is_real(parameter) or section == "workload" or name == "refresh_tolerance"


def _is_real(parameter: Parameter) -> bool:
    """True if a parameter's values are no integers and no choices but of real numbers."""
    if isinstance(parameter, Categorical):
        return any(isinstance(choice, float) for choice in parameter.choices)
    return isinstance(parameter, Float)


def _ends(parameter: Parameter) -> list[Scalar]:
    if isinstance(parameter, Categorical):
        return list(parameter.choices)
    return [parameter.low] if parameter.low == parameter.high else [parameter.low, parameter.high]


def _weight(space: SearchSpace, parameters: Mapping[str, Scalar], measured: Mapping[str, JsonValue]) -> float:
    """The weight of a measured config for one with these values; 0 where they differ in a choice."""
    weight = 1.0
    for parameter in space.active(parameters):
        if parameter.name not in measured:
            continue
        value, there = parameters[parameter.name], measured[parameter.name]
        if isinstance(parameter, Categorical):
            weight *= is_same(value, there)
        elif parameter.low < parameter.high:
            assert isinstance(value, int | float)
            share = _share(parameter.name, value, parameter.low, parameter.high)
            weight *= share if there == parameter.high else 1.0 - share
    return weight


def _share(name: str, value: float, low: float, high: float) -> float:
    """The distance of a value from the low end of its range, as a share of the distance between the ends."""
    if name in PERIODS:
        value, low, high = 1 / value, 1 / low, 1 / high
    return min(max((value - low) / (high - low), 0.0), 1.0)


def _is_of(measured: StepTime, side: Side, values: Mapping[str, Scalar]) -> bool:
    found = measured.parameters
    is_alike = measured.side == side and found.keys() == values.keys()
    return is_alike and all(is_same(found[name], value) for name, value in values.items())
