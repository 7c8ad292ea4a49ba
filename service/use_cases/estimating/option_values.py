"""The values of a workload's options that a job searches, each as trials that take it: so that what the workload would
refuse of them is found before the first trial."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from search_spaces import Scalar, SearchSpace, SpaceError
from search_spaces.parameters import Categorical, Parameter, sectioned


@dataclass(frozen=True, slots=True)
class OptionValue:
    """A choice of a searched workload option, or an end of its range."""

    field: str
    """Where it stands in the space: `parameters[2].choices[1]`, or `.low`, `.high`."""
    name: str
    value: Scalar
    trials: tuple[dict[str, Scalar], ...]
    """Parameters of trials that take it: the defaults, then these with one value of another option, which may be what
    it goes with."""


def option_values(space: SearchSpace) -> Iterator[OptionValue]:
    """What a space searches of its workload, value by value."""
    options = {i: p for i, p in enumerate(space.parameters) if sectioned(p.name)[0] == "workload"}
    for index, parameter in options.items():
        others = [other for other in options.values() if other.name != parameter.name]
        for end, value in _values(parameter):
            trials: list[dict[str, Scalar]] = []
            for beside in ([], *([(other, own)] for other in others for _, own in _values(other))):
                try:
                    trial = space.defaults_with((parameter, value), *beside)
                except SpaceError:
                    continue  # the two are never active together
                if trial not in trials:
                    trials.append(trial)
            yield OptionValue(f"parameters[{index}].{end}", parameter.name, value, tuple(trials))


def place_of(space: SearchSpace, option: str | None) -> str | None:
    """Where the default trial of a space has an option of the workload from, as `fixed.workload.depth` or
    `parameters[2].default`; None: not from the space."""
    name = f"workload.{option}"
    if name in space.fixed:
        return f"fixed.{name}"
    active = [parameter for parameter in space.active(space.defaults()) if parameter.name == name]
    return f"parameters[{space.parameters.index(active[0])}].default" if active else None


def _values(parameter: Parameter) -> list[tuple[str, Scalar]]:
    if isinstance(parameter, Categorical):
        return [(f"choices[{index}]", choice) for index, choice in enumerate(parameter.choices)]
    return [("low", parameter.low), ("high", parameter.high)]
