"""Parameters of any Optuna study as a `SearchSpace`, which the model of `auto` takes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from search_spaces import Categorical, Float, Integer, Parameter, Scalar, SearchSpace


class UnitSpace:
    """Distributions by name, and the space of their positions.

    A number without steps is a position in [0, 1] on its scale, one with steps and a choice the index of its value: so
    nothing is rounded that Optuna would not round. The space's optimizer means nothing.
    """

    def __init__(self, distributions: Mapping[str, BaseDistribution]) -> None:
        """Prepares the space.

        Raises:
            SpaceError: there are more parameters or choices than a space may have.
        """
        self._distributions = dict(distributions)
        self._own_names = {name: f"workload.p{index}" for index, name in enumerate(distributions)}
        self.space = SearchSpace(
            "sgd", tuple(_parameter(self._own_names[name], each) for name, each in distributions.items())
        )

    def encoded(self, values: Mapping[str, Any]) -> dict[str, Scalar]:
        """The assignment of the space for the values of a trial, which may have others beside them.

        A value beyond its range, which Optuna lets a user enqueue, counts as the edge.
        """
        return {
            self._own_names[name]: _position(distribution, values[name])
            for name, distribution in self._distributions.items()
        }

    def decoded(self, assignment: Mapping[str, Scalar]) -> dict[str, Any]:
        """The values for an assignment of the space."""
        return {
            name: _value(distribution, assignment[self._own_names[name]])
            for name, distribution in self._distributions.items()
        }


def _parameter(name: str, distribution: BaseDistribution) -> Parameter:
    match distribution:
        case CategoricalDistribution(choices=choices):
            return Categorical(name, tuple(range(len(choices))))
        case IntDistribution(low=low, high=high, log=True):
            return Integer(name, low, high, scale="log")
        case IntDistribution(low=low, high=high, step=step) | FloatDistribution(low=low, high=high, step=float(step)):
            return Integer(name, 0, round((high - low) / step))
    return Float(name, 0.0, 1.0)


def _position(distribution: BaseDistribution, value: Any) -> Scalar:
    if isinstance(distribution, IntDistribution | FloatDistribution):
        value = min(distribution.high, max(distribution.low, value))
    match distribution:
        case CategoricalDistribution():
            return int(distribution.to_internal_repr(value))
        case IntDistribution(log=True):
            return int(value)
        case IntDistribution(low=low, step=step) | FloatDistribution(low=low, step=float(step)):
            return round(float(value - low) / step)
        case FloatDistribution(low=low, high=high, log=True):
            return math.log(value / low) / math.log(high / low)
        case FloatDistribution(low=low, high=high):
            return float((value - low) / (high - low))
    raise TypeError(f"unknown distribution {distribution!r}")


def _value(distribution: BaseDistribution, position: Any) -> Any:
    match distribution:
        case CategoricalDistribution(choices=choices):
            return choices[position]
        case IntDistribution(log=True):
            return position
        case IntDistribution(low=low, step=step):
            return low + step * position
        case FloatDistribution(low=low, high=high, step=float(step)):
            return min(high, low + step * position)
        case FloatDistribution(low=low, high=high, log=True):
            return min(high, max(low, low * math.exp(position * math.log(high / low))))
        case FloatDistribution(low=low, high=high):
            return min(high, low + position * (high - low))
    raise TypeError(f"unknown distribution {distribution!r}")
