"""Values at the edge of their ranges: a hint that better ones lie beyond."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from search_spaces.parameters import Categorical, Float, Parameter, Scalar
from search_spaces.space import SearchSpace
from search_spaces.validation import argument_of

EDGE_SHARE = 0.02
"""The part of a range, on its scale, that counts as its edge, at either end.

Were the best values spread evenly over their ranges, one in 25 would lie there by chance.
"""


@dataclass(frozen=True, slots=True)
class Edge:
    """A value at the edge of its parameter's range, or beyond it."""

    name: str
    value: float
    bound: float
    side: Literal["lower", "upper"]

    @property
    def is_beyond(self) -> bool:
        """True if the value lies outside of the range."""
        return self.value < self.bound if self.side == "lower" else self.value > self.bound


def edges(space: SearchSpace, values: Mapping[str, Scalar]) -> list[Edge]:
    """The values at an edge of their ranges, in the order of the space.

    Bounds that are those of the optimizer itself are none, as a weight decay of 0: nothing lies beyond. Choices have no
    edge.

    Args:
        values: by the name of the parameter.
    """
    found: list[Edge] = []
    for parameter in space.active(values):
        value = values.get(parameter.name)
        if isinstance(parameter, Categorical) or not isinstance(value, int | float):
            continue
        if parameter.low == parameter.high:
            continue
        share = _share(parameter, value)
        if share <= EDGE_SHARE and not _ends_at(space, parameter, parameter.low):
            found.append(Edge(parameter.name, value, parameter.low, "lower"))
        elif share >= 1 - EDGE_SHARE and not _ends_at(space, parameter, parameter.high):
            found.append(Edge(parameter.name, value, parameter.high, "upper"))
    return found


def _share(parameter: Parameter, value: float) -> float:
    """The position in the range, 0 at its lower and 1 at its upper bound."""
    assert not isinstance(parameter, Categorical)
    if isinstance(parameter, Float):
        return parameter.to_unit(value)
    lowest, highest = parameter.to_unit(parameter.low), parameter.to_unit(parameter.high)
    return (parameter.to_unit(round(value)) - lowest) / (highest - lowest)


def _ends_at(space: SearchSpace, parameter: Parameter, bound: float) -> bool:
    """True if the optimizer takes nothing beyond the bound; False for an option of the workload, which may take
    more."""
    argument = argument_of(space.optimizer, parameter.name, parameter.name)
    return argument is not None and bound in (argument.low, argument.high)
