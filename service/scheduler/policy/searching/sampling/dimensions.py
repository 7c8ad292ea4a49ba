"""A search space as Optuna knows it: a name and a distribution for each parameter, and values there and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from search_spaces import Categorical, Float, Parameter, Scalar, SearchSpace
from search_spaces.parameters import is_active, is_same


class Dimensions:
    """The parameters of a space by Optuna's names for them, in the order of decisions."""

    def __init__(self, space: SearchSpace) -> None:
        self._parameters = list(zip(dimension_keys(space), space.parameters, strict=True))
        self._by_key = dict(self._parameters)
        self.distributions: dict[str, BaseDistribution] = {
            key: _distribution(parameter) for key, parameter in self._parameters
        }

    def encoded(self, values: Mapping[str, Scalar]) -> dict[str, Any]:
        """The values of an assignment as Optuna knows them, by Optuna's names."""
        return {
            key: to_optuna(parameter, values[parameter.name])
            for key, parameter in self._parameters
            if is_active(parameter, values)
        }

    def decoded(self, known: Mapping[str, Any]) -> dict[str, Scalar]:
        """The assignment, rounded, that values under Optuna's names are; those without effect are left out.

        Args:
            known: with a value for each parameter that has an effect.
        """
        values: dict[str, Scalar] = {}
        for key, parameter in self._parameters:
            if is_active(parameter, values):
                values[parameter.name] = _from_optuna(parameter, known[key])
        return values

    def rounded(self, key: str, value: Any) -> Any:
        """A value under one of Optuna's names as that of the trial that is trained with it."""
        parameter = self._by_key[key]
        return to_optuna(parameter, _from_optuna(parameter, value)) if isinstance(parameter, Float) else value

    def suggested(self, trial: optuna.Trial, *, without_effect: bool = False) -> dict[str, Scalar]:
        """The assignment that Optuna suggests for a trial, asked for one parameter after the other.

        Args:
            without_effect: whether it is asked for values of switched-off parameters, too.
        """
        return self.decoded(dict(self._asked(trial, without_effect)))

    def _asked(self, trial: optuna.Trial, without_effect: bool) -> Iterator[tuple[str, Any]]:
        values: dict[str, Scalar] = {}
        for key, parameter in self._parameters:
            has_effect = is_active(parameter, values)
            if has_effect or without_effect:
                value = _suggest(trial, key, self.distributions[key])
                yield key, value
            if has_effect and isinstance(parameter, Categorical):
                values[parameter.name] = parameter.choices[value]


def dimension_keys(space: SearchSpace) -> list[str]:
    """Optuna's names of the parameters: one name with two ranges is two dimensions, told apart by their conditions."""
    keys = [""] * len(space.parameters)
    for indices in space.dimensions():
        name = space.parameters[indices[0]].name
        conditions = " or ".join(filter(None, (_condition(space.parameters[index]) for index in indices)))
        for index in indices:
            keys[index] = f"{name} if {conditions}" if conditions else name
    return keys


def _condition(parameter: Parameter) -> str:
    return ";".join(f"{name} in {list(allowed)}" for name, allowed in sorted(parameter.when.items()))


def to_optuna(parameter: Parameter, value: Any) -> Any:
    """The value as Optuna knows it: the position of a choice, and 1 - x on the reverse scale.

    Optuna takes none beyond the range, which a user may have had tried: it counts as the edge.
    """
    if isinstance(parameter, Categorical):
        return next(i for i, choice in enumerate(parameter.choices) if is_same(choice, value))
    value = parameter.clipped(value)
    return 1 - value if isinstance(parameter, Float) and parameter.scale == "reverse_log" else value


def _from_optuna(parameter: Parameter, value: Any) -> Scalar:
    if isinstance(parameter, Categorical):
        choice: Scalar = parameter.choices[value]
        return choice
    if isinstance(parameter, Float):
        return parameter.rounded(1 - value if parameter.scale == "reverse_log" else value)
    return int(value)


def _distribution(parameter: Parameter) -> BaseDistribution:
    if isinstance(parameter, Categorical):
        # By position: Optuna compares choices with ==, and takes no lists.
        return CategoricalDistribution(range(len(parameter.choices)))
    if isinstance(parameter, Float):
        low, high = sorted((to_optuna(parameter, parameter.low), to_optuna(parameter, parameter.high)))
        return FloatDistribution(low, high, log=parameter.scale != "linear")
    return IntDistribution(parameter.low, parameter.high, log=parameter.scale == "log")


def _suggest(trial: optuna.Trial, key: str, distribution: BaseDistribution) -> Any:
    match distribution:
        case CategoricalDistribution(choices=choices):
            return trial.suggest_categorical(key, choices)
        case FloatDistribution(low=low, high=high, log=log):
            return trial.suggest_float(key, low, high, log=log)
        case IntDistribution(low=low, high=high, log=log):
            return trial.suggest_int(key, low, high, log=log)
    raise AssertionError(distribution)
