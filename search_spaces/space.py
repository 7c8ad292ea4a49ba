"""`SearchSpace`: the parameters of one optimizer that a phase of a job searches; validation, JSON, sampling.

A parameter's name is a path into the trial config: undotted names are arguments of the optimizer's constructor, with
`betas[0]` an element of a list argument; `schedule.`, `training.`, `averaging.`, `compression.` and `workload.` name
the other sections.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from search_spaces import decoding, validation
from search_spaces.errors import Breaches, SpaceError, require, show
from search_spaces.nearest import did_you_mean
from search_spaces.optimizers import ARGUMENTS, SECTIONS, OptimizerName
from search_spaces.parameters import Categorical, Float, Parameter, Scalar, is_active, is_same, sectioned

FixedValue: TypeAlias = Scalar | Sequence[float]


@dataclass(frozen=True, slots=True)
class Assignment:
    """Values sorted into the sections of a trial config."""

    optimizer: OptimizerName
    optimizer_arguments: dict[str, Any]
    """Keyword arguments of the constructor; `betas` is a list of two."""
    schedule: dict[str, Any]
    """Fields of the schedule."""
    workload_options: dict[str, Any]
    training: dict[str, Any]
    """Fields of the trial config itself, e.g. `gradient_clip_norm`."""
    averaging: dict[str, Any]
    """Arguments of the weight averaging, `method` among them."""
    compression: dict[str, Any]
    """Fields of the gradient compression."""


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """The parameters that are searched for one optimizer, and the values that are held fixed.

    A name may appear several times under conditions that exclude each other: at most one of them is ever active. The
    constructor validates everything and fills in the parameters' missing defaults.

    Raises:
        SpaceError: `field` is the path of what is wrong, and the message prints the values.
    """

    optimizer: OptimizerName
    parameters: tuple[Parameter, ...] = ()
    """The parameters in the order of decisions: a condition names only parameters above it."""
    fixed: Mapping[str, FixedValue] = field(default_factory=dict)
    """Values of names that are not searched."""

    def __post_init__(self) -> None:
        parameters, fixed = validation.validated(self.optimizer, self.parameters, self.fixed)
        object.__setattr__(self, "parameters", parameters)
        object.__setattr__(self, "fixed", fixed)

    @classmethod
    def from_json(cls, data: object) -> SearchSpace:
        """Builds a space from decoded JSON of any origin.

        Raises:
            SpaceError: always and only this, whatever the JSON.
        """
        breaches = Breaches()
        fields = decoding.fields_of_space(data, breaches)
        if len(breaches):  # what stands beside the faults is looked at, too
            with breaches.noted():
                validation.note_breaches(fields["optimizer"], fields["parameters"], fields["fixed"], breaches)
        breaches.tell()
        return cls(**fields)

    def to_json(self) -> dict[str, Any]:
        """The space as JSON-able values; `from_json` gives back an equal space."""
        return {
            "optimizer": self.optimizer,
            "parameters": [decoding.parameter_to_json(parameter) for parameter in self.parameters],
            "fixed": {name: list(v) if isinstance(v, list | tuple) else v for name, v in self.fixed.items()},
        }

    def active(self, values: Mapping[str, Any]) -> tuple[Parameter, ...]:
        """The parameters whose conditions `values` meet, in order; values of inactive names do not count."""
        found: list[Parameter] = []
        decided: dict[str, Any] = {}
        for parameter in self.parameters:
            if is_active(parameter, decided):
                found.append(parameter)
                if parameter.name in values:
                    decided[parameter.name] = values[parameter.name]
        return tuple(found)

    def defaults(self, given: Mapping[str, Scalar] | None = None, *, beyond_bounds: bool = False) -> dict[str, Scalar]:
        """The value of each active parameter when every parameter takes its default, or its `given` value.

        Args:
            beyond_bounds: as for `check`.

        Raises:
            SpaceError: a given value is impossible, or its parameter is not active.
        """
        values: dict[str, Scalar] = dict(given or {})
        decided: dict[str, Scalar] = {}
        for parameter in self.parameters:
            if is_active(parameter, decided):
                decided[parameter.name] = values.setdefault(parameter.name, parameter.default)
        return self.check(values, beyond_bounds=beyond_bounds)

    def defaults_with(self, *values: tuple[Parameter, Scalar]) -> dict[str, Scalar]:
        """The defaults, but for values of some parameters, and for the choices under which these are active.

        Raises:
            SpaceError: a value is impossible, or the parameters are never active together.
        """
        given: dict[str, Scalar] = {}
        for parameter, _ in values:
            given |= self._needed(parameter)
        return self.defaults(given | {parameter.name: value for parameter, value in values})

    @property
    def branching(self) -> tuple[Categorical, ...]:
        """The parameters whose choices open others, those without conditions of their own first."""
        named = {name for parameter in self.parameters for name in parameter.when}
        opening = [p for p in self.parameters if isinstance(p, Categorical) and p.name in named]
        return tuple(sorted(opening, key=lambda parameter: len(self._needed(parameter))))

    @property
    def member(self) -> Categorical | None:
        """The first parameter whose choices open others, as the member of a family; None: the space has none that is
        without conditions of its own."""
        return next((parameter for parameter in self.branching if not parameter.when), None)

    def branch_defaults(self) -> list[dict[str, Scalar]]:
        """The defaults, then for each other choice that opens parameters of its own the defaults with that choice."""
        found = [self.defaults()]
        for parameter in self.branching:
            for choice in parameter.choices:
                start = self.defaults_with((parameter, choice))
                if start not in found:
                    found.append(start)
        return found

    def dimensions(self) -> list[tuple[int, ...]]:
        """The indices of the parameters, grouped: those of one name and one range are one dimension.

        They stand under conditions that exclude each other, as where they differ in their default: what is learned of
        the range under one condition counts under the others.
        """
        groups: dict[object, list[int]] = {}
        for index, parameter in enumerate(self.parameters):
            groups.setdefault(parameter.domain, []).append(index)
        return [tuple(indices) for indices in groups.values()]

    def _needed(self, parameter: Parameter) -> dict[str, Scalar]:
        """Choices with which a parameter is active, defaults where they serve."""
        needed: dict[str, Scalar] = {}
        for name, allowed in parameter.when.items():
            for other in self.parameters:
                if other.name != name or not isinstance(other, Categorical) or name in needed:
                    continue
                suited = [choice for choice in other.choices if any(is_same(choice, value) for value in allowed)]
                if suited:
                    serves = any(is_same(choice, other.default) for choice in suited)
                    needed |= self._needed(other) | {name: other.default if serves else suited[0]}
        return needed

    def sample(self, rng: random.Random) -> dict[str, Scalar]:
        """A random value for each active parameter, uniform on its scale."""
        values: dict[str, Scalar] = {}
        for parameter in self.parameters:
            if is_active(parameter, values):
                values[parameter.name] = parameter.from_unit(rng.random())
        return values

    def check(self, values: object, *, beyond_bounds: bool = False) -> dict[str, Scalar]:
        """Checks that `values` give every active parameter, and nothing else, a value it can take.

        Args:
            beyond_bounds: whether a number may lie beyond the parameter's range, as far as the optimizer, or whatever
                else it is an argument of, accepts it.

        Returns:
            The values in the order of the parameters, numbers converted to the parameter's type.

        Raises:
            SpaceError: `field` is the parameter's name.
        """
        if not isinstance(values, Mapping):
            raise SpaceError("values", f"must be an object, got {show(values)}")
        checked: dict[str, Scalar] = {}
        for parameter in self.parameters:
            if is_active(parameter, checked):
                require(parameter.name in values, parameter.name, "needs a value", None)
                value = values[parameter.name]
                if beyond_bounds and not isinstance(parameter, Categorical):
                    checked[parameter.name] = validation.possible_number(self.optimizer, parameter, value)
                else:
                    checked[parameter.name] = _checked_value(parameter, value)
        for name, value in values.items():
            if name not in checked:
                known = any(parameter.name == name for parameter in self.parameters)
                problem = "is not active with these values"
                if not known:
                    problem = f"is not a parameter of this space{did_you_mean(name, [p.name for p in self.parameters])}"
                raise SpaceError(name if known else "values", f"{show(name)} = {show(value)} {problem}")
        return checked

    def assign(self, values: Mapping[str, Scalar]) -> Assignment:
        """Sorts checked values, and the fixed ones, into the sections of a trial config.

        Raises:
            SpaceError: as for `check`, with `beyond_bounds`.
        """
        merged: dict[str, Any] = {**self.fixed, **self.check(values, beyond_bounds=True)}
        sections: dict[str, dict[str, Any]] = {section: {} for section in ("", "workload", *SECTIONS)}
        for name, value in merged.items():
            section, field_name = sectioned(name)
            sections[section][field_name] = list(value) if isinstance(value, list | tuple) else value
        return Assignment(
            optimizer=self.optimizer,
            optimizer_arguments=_fold_pairs(self.optimizer, sections[""]),
            schedule=sections["schedule"],
            workload_options=sections["workload"],
            training=sections["training"],
            averaging=sections["averaging"],
            compression=sections["compression"],
        )


def _checked_value(parameter: Parameter, value: object) -> Scalar:
    if isinstance(parameter, Categorical):
        for choice in parameter.choices:
            if is_same(choice, value):
                return choice
        raise SpaceError(parameter.name, f"must be one of {show(list(parameter.choices))}, got {show(value)}")
    number: float | int
    if isinstance(parameter, Float):
        number = validation.finite(value, parameter.name)
    else:
        number = validation.integer(value, parameter.name)
    inside = parameter.low <= number <= parameter.high
    require(inside, parameter.name, f"must be in [{parameter.low!r}, {parameter.high!r}]", value)
    return number


def _fold_pairs(optimizer: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Replaces `betas[0]` and `betas[1]` by the list `betas`; a missing element is the constructor's default."""
    folded: dict[str, Any] = {}
    for name, value in arguments.items():
        argument, bracket, index = name.partition("[")
        if not bracket:
            folded[name] = value
            continue
        default = ARGUMENTS[optimizer][argument].default
        assert isinstance(default, tuple)
        folded.setdefault(argument, list(default))[int(index[0])] = value
    return folded
