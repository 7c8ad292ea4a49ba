"""A config of one space as an assignment of another one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_spaces.optimizers import ARGUMENTS
from search_spaces.parameters import Categorical, Integer, Parameter, Scalar, is_active, is_same
from search_spaces.space import SearchSpace


def fit(
    space: SearchSpace, given: Mapping[str, Scalar], *, held: Mapping[str, Any] | None = None
) -> tuple[dict[str, Scalar], list[str]] | None:
    """`given` as an assignment of another space, and the names of what had to be clipped; None: it does not fit.

    Args:
        held: all arguments of the optimizer that the config had, beside those given. Where the space searches a choice
            that was held fixed, as which member of a family, it takes that.
    """
    if _is_of_another_branch(space, given):
        return None
    values: dict[str, Scalar] = {}
    clipped: list[str] = []
    own, fixed = given.keys(), held or {}
    for branching in space.branching:
        if branching.name not in given and fixed.get(branching.name) in branching.choices:
            given = {**given, branching.name: fixed[branching.name]}
    for parameter in space.parameters:
        if not is_active(parameter, values):
            continue
        if parameter.name not in given:
            values[parameter.name] = parameter.default
            continue
        try:
            values[parameter.name] = _nearest(parameter, given[parameter.name])
        except ValueError:
            return None
        if not is_same(values[parameter.name], given[parameter.name]):
            clipped.append(parameter.name)
    if not own & values.keys():
        return None
    return space.check(values), clipped


def _is_of_another_branch(space: SearchSpace, given: Mapping[str, Scalar]) -> bool:
    """True if a choice was searched that this space has otherwise, fixed or as the optimizer's default."""
    searched = {parameter.name for parameter in space.parameters}
    arguments = ARGUMENTS[space.optimizer]
    for name, value in given.items():
        if name not in searched and name in arguments and arguments[name].kind == "choice":
            own = space.fixed.get(name, arguments[name].default)
            if own is not None and own != value:
                return True
    return False


def _nearest(parameter: Parameter, value: Scalar) -> Scalar:
    """Raises: ValueError: nothing is near."""
    if isinstance(parameter, Categorical):
        if not any(is_same(value, choice) for choice in parameter.choices):
            raise ValueError(f"{value!r} is no choice of {parameter.name}")
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is no number for {parameter.name}")
    return parameter.clipped(round(value)) if isinstance(parameter, Integer) else parameter.clipped(value)
