"""Changing a configuration in the middle of a training run, as population based training does (arXiv:1711.09846)."""

from __future__ import annotations

import random
from collections.abc import Mapping

from search_spaces.optimizers import ARGUMENTS, IN_FLIGHT
from search_spaces.parameters import Categorical, Float, Parameter, Scalar, sectioned
from search_spaces.space import SearchSpace

FACTORS = (0.8, 1.2)
"""Factors by which a value changes on its scale, those of the paper."""
RESAMPLED = 0.25
"""Probability that a value is drawn anew from its range instead, as in Ray Tune's implementation."""


def may_change_in_flight(space: SearchSpace, parameter: Parameter) -> bool:
    """True if values of a parameter may change between two steps of a training run; see `IN_FLIGHT`."""
    if isinstance(parameter, Categorical):
        return False
    section, name = sectioned(parameter.name)
    return name.partition("[")[0] in IN_FLIGHT.get(section or space.optimizer, ())


def perturb(space: SearchSpace, values: Mapping[str, Scalar], rng: random.Random) -> dict[str, Scalar]:
    """The values with those changed that may change in flight: each by one of `FACTORS`, or drawn anew.

    A factor multiplies the value, on the reverse logarithmic scale its distance from 1. Integers change by at least 1.
    What would leave the range ends at its edge, and what lies there already turns back.

    Args:
        values: checked ones of the space.
    """
    changed = dict(values)
    for parameter in space.active(values):
        value = values[parameter.name]
        if not may_change_in_flight(space, parameter) or not isinstance(value, int | float):
            continue
        factor, other = rng.sample(FACTORS, 2)
        drawn, is_drawn = parameter.from_unit(rng.random()), rng.random() < RESAMPLED
        found = drawn if is_drawn else _scaled(parameter, value, factor)
        if found == value:
            found = _scaled(parameter, value, other)
        if not (_is_special(space, parameter, value) or _is_special(space, parameter, found)):
            changed[parameter.name] = found
    return changed


def _scaled(parameter: Parameter, value: float, factor: float) -> Scalar:
    if isinstance(parameter, Categorical):
        raise TypeError(f"a choice has no scale: {parameter.name!r}")
    if isinstance(parameter, Float):
        moved = 1 - (1 - value) * factor if parameter.scale == "reverse_log" else value * factor
        return parameter.rounded(moved)
    down, up = min(round(value * factor), round(value) - 1), max(round(value * factor), round(value) + 1)
    return min(max(down if factor < 1 else up, parameter.low), parameter.high)


def _is_special(space: SearchSpace, parameter: Parameter, value: Scalar) -> bool:
    """True if a value means that there is nothing to weigh (0), or that an average is a sum (1)."""
    if value == 0:
        return True
    if value != 1 or not isinstance(parameter, Float) or "." in parameter.name:
        return False
    name, bracket, index = parameter.name.partition("[")
    argument = ARGUMENTS[space.optimizer][name]
    return (argument.elements[int(index[0])] if bracket else argument).high == 1.0
