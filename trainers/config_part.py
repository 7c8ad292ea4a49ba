"""The parts of a config: dataclasses that check themselves by what their fields declare, and are read from JSON.

A field's type carries its bounds, `Annotated[float, Bounds(gt=0)]`. Nothing of pydantic is imported, but it finds the
bounds where it validates such a dataclass.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias, get_args, get_origin

from search_spaces.nearest import did_you_mean

Json: TypeAlias = str | int | float | bool | list["Json"] | dict[str, "Json"] | None

MAX_COUNT = 2**31 - 1
"""Steps and examples: what an INTEGER column holds."""
MAX_SEED = 2**63 - 1
"""The largest seed that torch and NumPy both take, and on which JSON readers in other languages do not overflow."""


class InvalidConfig(ValueError):
    """A field of a trial's config is impossible; `field` is its path, e.g. `schedule.warmup_fraction`."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message

    def __reduce__(self) -> tuple[type[InvalidConfig], tuple[str, str]]:
        return type(self), (self.field, self.message)


class RefusedPart(StrEnum):
    """The part of a trial that is at fault."""

    WORKLOAD = "workload"
    """There is no such workload, or it is none."""
    OPTIONS = "options"
    """The workload refuses its options."""
    OPTIMIZER = "optimizer"
    """The optimizer is not for the workload's model."""
    ARGUMENTS = "arguments"
    """The optimizer refuses its arguments."""
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refusal of a trial's config."""

    part: RefusedPart
    message: str
    """The reason, for a person."""
    option: str = ""
    """The option of the workload that is at fault, or an element of it; empty: none, or which one is not known."""

    @classmethod
    def of(cls, error: InvalidConfig) -> Self:
        """The refusal that an error is."""
        section, _, below = error.field.partition(".")
        match section:
            case "workload":
                return cls(RefusedPart.WORKLOAD, error.message)
            case "workload_options":
                return cls(RefusedPart.OPTIONS, error.message, below)
            case "optimizer":
                return cls(RefusedPart.OPTIMIZER if below == "name" else RefusedPart.ARGUMENTS, error.message)
            case _:
                return cls(RefusedPart.OTHER, error.message)


def require(condition: bool, field_name: str, value: object, rule: str) -> None:
    if not condition:
        raise InvalidConfig(field_name, f"{rule}, got {value!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Bounds of a number, declared with its type: `Annotated[float, Bounds(gt=0)]`; without `gt` or `ge` none below.

    The names are those of pydantic, which reads them where it validates such a field (`docs.pydantic.dev`, "Handling
    third-party types"); nothing of it is imported for that.
    """

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None

    def holds(self, number: float) -> bool:
        """True if the number is within the bounds."""
        return (
            (self.ge is None or number >= self.ge)
            and (self.gt is None or number > self.gt)
            and (self.le is None or number <= self.le)
            and (self.lt is None or number < self.lt)
        )

    def __str__(self) -> str:
        low, high = self.ge if self.gt is None else self.gt, self.le if self.lt is None else self.lt
        if low is None:
            return "a finite number" if high is None else f"{'<=' if self.lt is None else '<'} {high:g}"
        if high is None or high in (MAX_COUNT, MAX_SEED):
            return f"{'>=' if self.gt is None else '>'} {low:g}"
        return f"in {'[' if self.gt is None else '('}{low:g}, {high:g}{']' if self.lt is None else ')'}"

    def __get_pydantic_core_schema__(self, source: object, handler: Callable[[object], dict[str, Any]]) -> Any:
        given = {name: getattr(self, name) for name in ("ge", "gt", "le", "lt")}
        return {**handler(source), **{name: bound for name, bound in given.items() if bound is not None}}


class _JsonObject:
    """Says that a mapping's values are any JSON, which the recursive type `Json` cannot tell pydantic."""

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> Any:
        return {"type": "dict", "keys_schema": {"type": "str"}}


Count: TypeAlias = Annotated[int, Bounds(ge=1, le=MAX_COUNT)]
Positive: TypeAlias = Annotated[float, Bounds(gt=0)]
JsonObject: TypeAlias = Annotated[Mapping[str, Json], _JsonObject()]

_Rule: TypeAlias = Callable[[object], str | None]
"""Tells what a value must be, if it is not that."""


def _rule_of(hint: Any) -> _Rule | None:
    """The rule that a field's type declares; None: it is a part with rules of its own."""
    if get_origin(hint) is Annotated:
        kind, declared = get_args(hint)[:2]
        return functools.partial(_number_rule, kind, declared) if isinstance(declared, Bounds) else _rule_of(kind)
    if get_origin(hint) in (typing.Union, types.UnionType):
        rule = _rule_of(next(choice for choice in get_args(hint) if choice is not type(None)))
        return None if rule is None else lambda value: None if value is None else rule(value)
    if get_origin(hint) is Literal:
        choices = get_args(hint)
        return lambda value: None if value in choices else f"must be one of {', '.join(choices)}"
    if hint is bool:
        return lambda value: None if isinstance(value, bool) else "must be true or false"
    if hint is str:
        return lambda value: None if isinstance(value, str) and value else "must be a name"
    if get_origin(hint) is Mapping:
        return lambda value: None if isinstance(value, Mapping) else "must be an object"
    return None


def _number_rule(kind: type, bounds: Bounds, value: object) -> str | None:
    if isinstance(value, int | float) and not isinstance(value, bool) and (kind is not int or isinstance(value, int)):
        if math.isfinite(value) and bounds.holds(value):
            return None
        if bounds.le is not None and bounds.le in (MAX_COUNT, MAX_SEED) and value > bounds.le:
            return f"must be an integer <= {bounds.le}"
    return f"must be an integer {bounds}" if kind is int else f"must be {bounds}"


@functools.cache
def _hints(part: type) -> dict[str, Any]:
    hints = typing.get_type_hints(part, include_extras=True)
    return {declared.name: hints[declared.name] for declared in dataclasses.fields(part)}


@functools.cache
def _rules(part: type) -> dict[str, _Rule]:
    rules = {name: _rule_of(hint) for name, hint in _hints(part).items()}
    return {name: rule for name, rule in rules.items() if rule is not None}


class ConfigPart:
    """A part of a trial's config: a dataclass whose fields keep to what their types declare."""

    __slots__ = ()
    section: ClassVar[str] = ""
    """The beginning of its fields' paths: its place in the config."""

    def __init_subclass__(cls, section: str | None = None) -> None:
        if section is not None:  # a dataclass with slots is made twice, the second time without
            cls.section = section

    def __post_init__(self) -> None:
        own: type = type(self)
        for name, rule in _rules(own).items():
            broken = rule(value := getattr(self, name))
            require(broken is None, self.section + name, value, broken or "")

    @classmethod
    def from_json(cls, data: object) -> Self:
        """Builds it from decoded JSON.

        Raises:
            InvalidConfig: a field is unknown, missing or out of range; the message names it and its value.
        """
        require(isinstance(data, Mapping), cls.section.rstrip(".") or cls.__name__, data, "must be an object")
        assert isinstance(data, Mapping)
        own: type = cls
        hints = _hints(own)
        for name in data:
            if name not in hints:
                rule = f"unknown field (known: {', '.join(hints)}){did_you_mean(name, hints)}"
                require(False, f"{cls.section}{name}", data[name], rule)
        for declared in dataclasses.fields(cls):  # type: ignore[arg-type]  # its subclasses are dataclasses
            optional = (
                declared.default is not dataclasses.MISSING or declared.default_factory is not dataclasses.MISSING
            )
            require(declared.name in data or optional, f"{cls.section}{declared.name}", None, "is required")
        return cls(**{name: _value_from_json(hints[name], value) for name, value in data.items()})

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: Any) -> Any:
        schema = handler(source)
        # A strict model's fields stay strict; but in place of a part JSON has an object.
        handler.resolve_ref_schema(schema)["strict"] = False
        return schema


def _value_from_json(hint: Any, value: Any) -> Any:
    choices = (hint, *get_args(hint))
    part = next((kind for kind in choices if isinstance(kind, type) and issubclass(kind, ConfigPart)), None)
    if part is not None and not (value is None and type(None) in choices):
        return part.from_json(value)
    return tuple(value) if get_origin(hint) is tuple and isinstance(value, list) else value
