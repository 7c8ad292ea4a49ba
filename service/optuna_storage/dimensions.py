"""Search spaces as Optuna's distributions, with readable choices and values as they were trained."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from search_spaces import Categorical, Float, Integer, Parameter, Scalar, SearchSpace
from search_spaces.parameters import is_same
from service.scheduler.policy.searching.sampling.dimensions import dimension_keys


@dataclass(frozen=True, slots=True)
class Distributions:
    """The distribution of each parameter of a space, by Optuna's name of it.

    The range of a number is the space's, widened where a trial that a user proposed lies beyond it; on a logarithmic
    scale unless such a value is 0 or less. Optuna has no scale for factors close to 1 (`reverse_log`): they have a
    linear one. Choices are as they are.
    """

    space: SearchSpace
    distributions: Mapping[str, BaseDistribution]


@dataclass(frozen=True, slots=True)
class TrialParameters:
    """The parameters of a trial as Optuna knows them."""

    values: dict[str, Scalar]
    distributions: dict[str, BaseDistribution]
    unknown: dict[str, Scalar]
    """Values, by our own names, that the space does not have (any more), so that they have no distribution."""


def dimensions_of(space: SearchSpace, assignments: Iterable[Mapping[str, Scalar]]) -> Distributions:
    """The dimensions of a space that hold all of these assignments of it."""
    keys = dimension_keys(space)
    seen: dict[str, list[Scalar]] = {key: [] for key in keys}
    for assignment in assignments:
        for key, parameter in _known(space, assignment):
            seen[key].append(assignment[parameter.name])
    distributions = {key: _distribution(p, seen[key]) for key, p in zip(keys, space.parameters, strict=True)}
    return Distributions(space, distributions)


def parameters_of(dimensions: Distributions, assignment: Mapping[str, Scalar], *, prefix: str = "") -> TrialParameters:
    """The parameters of a trial with this assignment, which the dimensions hold.

    Args:
        prefix: of the names, where a study has trials of several spaces.
    """
    known = dict(_known(dimensions.space, assignment))
    names = {parameter.name for parameter in known.values()}
    return TrialParameters(
        values={f"{prefix}{key}": _shown(parameter, assignment[parameter.name]) for key, parameter in known.items()},
        distributions={f"{prefix}{key}": dimensions.distributions[key] for key in known},
        unknown={name: value for name, value in assignment.items() if name not in names},
    )


def _known(space: SearchSpace, assignment: Mapping[str, Scalar]) -> list[tuple[str, Parameter]]:
    """The parameters that are active in an assignment and have a value there that is of their kind, with their keys."""
    active = {id(parameter) for parameter in space.active(assignment)}
    return [
        (key, parameter)
        for key, parameter in zip(dimension_keys(space), space.parameters, strict=True)
        if id(parameter) in active
        and parameter.name in assignment
        and _is_of_its_kind(parameter, assignment[parameter.name])
    ]


def _is_of_its_kind(parameter: Parameter, value: Scalar) -> bool:
    if isinstance(parameter, Categorical):
        return any(is_same(choice, value) for choice in parameter.choices)
    kinds = (int, float) if isinstance(parameter, Float) else int
    return isinstance(value, kinds) and not isinstance(value, bool)


def _distribution(parameter: Parameter, values: Sequence[Scalar]) -> BaseDistribution:
    if isinstance(parameter, Categorical):
        return CategoricalDistribution(parameter.choices)
    numbers = [value for value in values if isinstance(value, int | float)]
    low, high = min([parameter.low, *numbers]), max([parameter.high, *numbers])
    is_log = parameter.scale == "log" and low > 0
    if isinstance(parameter, Integer):
        return IntDistribution(int(low), int(high), log=is_log)
    return FloatDistribution(float(low), float(high), log=is_log)


def _shown(parameter: Parameter, value: Scalar) -> Scalar:
    """The value as the distribution has it: JSON may have made a whole number of a real one."""
    return float(value) if isinstance(parameter, Float) and isinstance(value, int) else value
