"""The values of a workload's options, and the choices of an optimizer's arguments, that a job searches, each with
trials that use it. With them, values that workload or optimizer refuse are found before the first trial."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from search_spaces import Integer, Scalar, SearchSpace, SpaceError
from search_spaces.parameters import Categorical, Parameter, sectioned

INSIDE = (0.146, 0.382, 0.618, 0.854)
"""Positions in the range of an integer, which are not round shares of it: if only multiples of something are possible,
most of these positions are not multiples, although the ends may be."""
NUM_SAMPLES = 32
"""The number of trials with a value and random values of the other options."""


@dataclass(frozen=True, slots=True)
class OptionValue:
    """A choice of a searched option or argument, an end of its range, or a value inside it."""

    field: str
    """The place of the value in the space: `parameters[2].choices[1]`, or `.low`, `.high`; inside a range
    `parameters[2]`."""
    name: str
    value: Scalar
    is_inside: bool
    trials: tuple[dict[str, Scalar], ...]
    """Parameters of trials with this value: with the defaults, then with other values of the other options of its
    section, because it may not be compatible with their defaults."""


def option_values(space: SearchSpace) -> Iterator[OptionValue]:
    """The options that a space searches of its workload, value by value."""
    options = _of_section(space, "workload")
    return _each_beside_others(space, options, options)


def argument_choices(space: SearchSpace) -> Iterator[OptionValue]:
    """Choices of a space for its optimizer, one by one. Ranges are left out: a part of a range that is compatible with
    no other value is searched little, and says nothing about the rest."""
    arguments = _of_section(space, "")
    tried = {index: parameter for index, parameter in arguments.items() if isinstance(parameter, Categorical)}
    return _each_beside_others(space, tried, arguments)


def _of_section(space: SearchSpace, section: str) -> dict[int, Parameter]:
    return {i: parameter for i, parameter in enumerate(space.parameters) if sectioned(parameter.name)[0] == section}


def _each_beside_others(
    space: SearchSpace, tried: Mapping[int, Parameter], options: Mapping[int, Parameter]
) -> Iterator[OptionValue]:
    for index, parameter in tried.items():
        others = [other for other in options.values() if other.name != parameter.name]
        for end, value in _values(parameter):
            trials: list[dict[str, Scalar]] = []
            for beside in ([], *_beside(space, others)):
                try:
                    trial = space.defaults_with((parameter, value), *beside)
                except SpaceError:
                    continue  # they are never active together
                if trial not in trials:
                    trials.append(trial)
            field = f"parameters[{index}].{end}" if end else f"parameters[{index}]"
            yield OptionValue(field, parameter.name, value, is_inside=not end, trials=tuple(trials))


def _beside(space: SearchSpace, others: list[Parameter]) -> Iterator[list[tuple[Parameter, Scalar]]]:
    """Values of other options: one of them, then random ones of all that are active."""
    for other in others:
        yield from ([(other, value)] for _, value in _values(other))
    rng = random.Random("option values")
    for _ in range(NUM_SAMPLES if len(others) > 1 or any(not isinstance(one, Categorical) for one in others) else 0):
        sampled = space.sample(rng)
        active = space.active(sampled)
        yield [(other, sampled[other.name]) for other in others if other in active]


def place_of(space: SearchSpace, option: str | None) -> str | None:
    """The place in a space that sets an option of the workload in the default trial, such as `fixed.workload.depth` or
    `parameters[2].default`; None: the space does not set it."""
    name = f"workload.{option}"
    if name in space.fixed:
        return f"fixed.{name}"
    active = [parameter for parameter in space.active(space.defaults()) if parameter.name == name]
    return f"parameters[{space.parameters.index(active[0])}].default" if active else None


def _values(parameter: Parameter) -> list[tuple[str, Scalar]]:
    """Values that are tried, and the role of each in the parameter; empty: inside its range."""
    if isinstance(parameter, Categorical):
        return [(f"choices[{index}]", choice) for index, choice in enumerate(parameter.choices)]
    ends: list[tuple[str, Scalar]] = [("low", parameter.low), ("high", parameter.high)]
    if not isinstance(parameter, Integer):
        return ends
    inside = sorted({parameter.from_unit(position) for position in INSIDE} - {parameter.low, parameter.high})
    return [*ends, *(("", value) for value in inside)]
