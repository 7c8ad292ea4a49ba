"""The rules of a search space, each breach naming its field and printing the values."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, TypeVar

from search_spaces.arguments import Argument
from search_spaces.errors import Breaches, SpaceError, require, show
from search_spaces.nearest import did_you_mean
from search_spaces.optimizers import ARGUMENTS, OPTIMIZER_NAMES, SECTIONS
from search_spaces.parameters import Categorical, Float, Integer, Parameter, Scalar, is_same

MAX_PARAMETERS = 30
"""Most parameters of a space, most fixed values, and most conditions of a parameter; by judgement, several times what
any preset has."""
MAX_CHOICES = 30
"""Most choices of a parameter, by judgement: more are no set to choose from but a range."""
MAX_TEXT = 500
"""Characters of a reason, a source or a choice: some sentences."""
MAX_INTEGER = 2**53
"""JSON readers keep integers exact only up to here."""

Number = TypeVar("Number", int, float)

_WORKLOAD_OPTION = re.compile(r"workload\.[A-Za-z_][A-Za-z0-9_]{0,63}")
_ELEMENT = re.compile(r"([a-z0-9_]+)\[([01])\]")
_ANYTHING = None
"""The argument that a workload's option is: the workload itself checks it."""


def validated(
    optimizer: object, parameters: Sequence[object], fixed: Mapping[str, Any]
) -> tuple[tuple[Parameter, ...], dict[str, Any]]:
    """The parameters with defaults filled in, and the fixed values, after every rule has held.

    Raises:
        SpaceError: a rule does not hold.
    """
    breaches = Breaches()
    found = note_breaches(optimizer, parameters, fixed, breaches)
    breaches.tell()
    return found


def note_breaches(
    optimizer: object, parameters: Sequence[object], fixed: Mapping[str, Any], breaches: Breaches
) -> tuple[tuple[Parameter, ...], dict[str, Any]]:
    """Checks as `validated` does, and notes what is wrong of each parameter and each fixed value.

    Args:
        parameters: None: there is one that could not be built; what others say of it is not looked at.

    Raises:
        SpaceError: the optimizer is none, or there are too many parameters; nothing else was looked at.
    """
    names = ", ".join(OPTIMIZER_NAMES)
    if not isinstance(optimizer, str) or optimizer not in OPTIMIZER_NAMES:
        raise SpaceError(
            "optimizer", f"must be one of {names}, got {show(optimizer)}{did_you_mean(optimizer, OPTIMIZER_NAMES)}"
        )
    require(len(parameters) <= MAX_PARAMETERS, "parameters", f"must be at most {MAX_PARAMETERS}", len(parameters))
    checked: list[Parameter] = []
    broken: set[str] = set()
    """Names of parameters that have faults of their own."""
    for index, parameter in enumerate(parameters):
        path, num_before = f"parameters[{index}]", len(breaches)
        if parameter is None:
            continue
        if not isinstance(parameter, Float | Integer | Categorical):
            breaches.note(SpaceError(path, f"must be a Float, Integer or Categorical, got {show(parameter)}"))
            continue
        for text_field in ("reason", "source"):
            with breaches.noted():
                _text(getattr(parameter, text_field), f"{path}.{text_field}")
        if None not in parameters[:index]:
            with breaches.noted():
                _conditions(parameter, checked, path, broken=broken)
        with breaches.noted():
            argument = argument_of(optimizer, parameter.name, f"{path}.name")
            whole = _CHECKS[parameter.kind](parameter, argument, path)
            if len(breaches) == num_before:
                checked.append(_with_default(whole))
        if len(breaches) > num_before and isinstance(parameter.name, str):
            broken.add(parameter.name)
    return tuple(checked), _fixed(optimizer, fixed, checked, breaches)


def finite(value: object, path: str) -> float:
    """`value` as a float, if it is a finite number.

    Raises:
        SpaceError: it is not.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number
    raise SpaceError(path, f"must be a finite number, got {show(value)}")


def integer(value: object, path: str) -> int:
    """`value` as an int, if it is a whole number that JSON carries exactly.

    Raises:
        SpaceError: it is not.
    """
    number = finite(value, path)
    if abs(number) > MAX_INTEGER or number != int(number):
        raise SpaceError(path, f"must be an integer, got {show(value)}")
    return int(number)


def possible_number(optimizer: str, parameter: Float | Integer, value: object) -> float:
    """`value` as a number of the parameter's type within the bounds of its argument; its range does not count.

    Raises:
        SpaceError: it is none; `field` is the parameter's name.
    """
    number = (finite if isinstance(parameter, Float) else integer)(value, parameter.name)
    _bounds(argument_of(optimizer, parameter.name, parameter.name), number, parameter.name)
    return number


def _text(value: object, path: str) -> str:
    if not isinstance(value, str):
        raise SpaceError(path, f"must be a string, got {show(value)}")
    require(len(value) <= MAX_TEXT, path, f"must have at most {MAX_TEXT} characters", len(value))
    # Databases store neither NUL nor halves of surrogate pairs.
    storable = "\0" not in value and not any("\ud800" <= character <= "\udfff" for character in value)
    require(storable, path, "must be text without NUL and lone surrogates", value)
    return value


def argument_of(optimizer: str, name: object, path: str) -> Argument | None:
    """The argument that the named place in the trial config is; None for workload options, which may be anything.

    Raises:
        SpaceError: there is no such place; `path` is that of the name.
    """
    if isinstance(name, str):
        if _WORKLOAD_OPTION.fullmatch(name):
            return _ANYTHING
        if element := _ELEMENT.fullmatch(name):
            argument = ARGUMENTS[optimizer].get(element[1])
            if argument is not None and argument.kind == "pair":
                return argument.elements[int(element[2])]
        known = {**ARGUMENTS[optimizer], **_in_sections()}
        if name in known:
            return known[name]
    places = [f"{n}[0], {n}[1]" if a.kind == "pair" else n for n, a in ARGUMENTS[optimizer].items()]
    places += [*_in_sections(), "workload.<option>"]
    each = [place for listed in places for place in listed.split(", ")]
    hint = did_you_mean(name, each) or f" (known: {', '.join(places)})"  # they are sixty
    raise SpaceError(path, f"unknown parameter {show(name)} of {optimizer}{hint}")


def _in_sections() -> dict[str, Argument]:
    return {f"{section}.{name}": argument for section, fields in SECTIONS.items() for name, argument in fields.items()}


def _conditions(
    parameter: Parameter, above: Sequence[Parameter], path: str, *, broken: AbstractSet[str] = frozenset()
) -> None:
    """Args: broken: names of further parameters above, of which nothing is known."""
    if not isinstance(parameter.when, Mapping):
        raise SpaceError(f"{path}.when", f"must be an object of lists, got {show(parameter.when)}")
    for name, allowed in parameter.when.items():
        where = f"{path}.when"
        if name in broken:
            continue
        named = [other for other in above if other.name == name]
        require(bool(named), where, "must name a parameter above this one", name)
        choices: list[Scalar] = []
        for other in named:
            if not isinstance(other, Categorical):
                raise SpaceError(where, f"must name a categorical parameter, got {show(name)}, a {other.kind}")
            choices += other.choices
        require(isinstance(allowed, tuple | list) and bool(allowed), where, f"needs values for {name}", allowed)
        for value in allowed:
            possible = any(is_same(value, choice) for choice in choices)
            require(possible, where, f"{name} must be one of {show(choices)}", value)
    for other_index, other in enumerate(above):
        if other.name == parameter.name and not _excludes(parameter, other):
            raise SpaceError(
                f"{path}.when",
                f"{parameter.name} can be active together with parameters[{other_index}] of the same name: "
                f"{show(dict(parameter.when))} and {show(dict(other.when))} do not exclude each other",
            )


def _excludes(one: Parameter, other: Parameter) -> bool:
    """True if some named parameter would need two values at once for both to be active."""
    return any(
        not any(is_same(a, b) for a in one.when[name] for b in other.when[name])
        for name in one.when.keys() & other.when
    )


def _both(read: Callable[[object, str], Number], parameter: Float | Integer, path: str) -> tuple[Number, Number]:
    """Both ends of a range, as numbers."""
    breaches, ends = Breaches(), list[Number]()
    for end in ("low", "high"):
        with breaches.noted():
            ends.append(read(getattr(parameter, end), f"{path}.{end}"))
    breaches.tell()
    return ends[0], ends[1]


def _check_ends(argument: Argument | None, low: float, high: float, path: str) -> None:
    breaches = Breaches()
    for end, value in (("low", low), ("high", high)):
        with breaches.noted():
            _bounds(argument, value, f"{path}.{end}")
    breaches.tell()


def _check_float(parameter: Float, argument: Argument | None, path: str) -> Float:
    require(argument is None or argument.kind == "float", f"{path}.type", f"{parameter.name} is no float", "float")
    scales = ("linear", "log", "reverse_log")
    scale = parameter.scale if isinstance(parameter.scale, str) else None
    require(scale in scales, f"{path}.scale", f"must be one of {', '.join(scales)}", parameter.scale)
    low, high = _both(finite, parameter, path)
    require(low <= high, f"{path}.low", f"must be at most high = {high!r}", low)
    require(scale != "log" or low > 0, f"{path}.low", "must be > 0 on a log scale", low)
    require(scale != "reverse_log" or high < 1, f"{path}.high", "must be < 1 on a reverse_log scale", high)
    distance = high / low if scale == "log" else high - low
    require(math.isfinite(distance), f"{path}.high", f"is too far from low = {low!r}", high)
    _check_ends(argument, low, high, path)
    default = parameter.default
    if default is not None:
        default = finite(default, f"{path}.default")
        require(low <= default <= high, f"{path}.default", f"must be in [{low!r}, {high!r}]", default)
    return dataclasses.replace(parameter, low=low, high=high, default=default, when=_tuples(parameter.when))


def _check_integer(parameter: Integer, argument: Argument | None, path: str) -> Integer:
    require(
        argument is None or argument.kind == "integer", f"{path}.type", f"{parameter.name} is no integer", "integer"
    )
    scale = parameter.scale if isinstance(parameter.scale, str) else None
    require(scale in ("linear", "log"), f"{path}.scale", "must be one of linear, log", parameter.scale)
    low, high = _both(integer, parameter, path)
    require(low <= high, f"{path}.low", f"must be at most high = {high!r}", low)
    require(scale != "log" or low > 0, f"{path}.low", "must be > 0 on a log scale", low)
    _check_ends(argument, low, high, path)
    default = parameter.default
    if default is not None:
        default = integer(default, f"{path}.default")
        require(low <= default <= high, f"{path}.default", f"must be in [{low!r}, {high!r}]", default)
    return dataclasses.replace(parameter, low=low, high=high, default=default, when=_tuples(parameter.when))


def _check_categorical(parameter: Categorical, argument: Argument | None, path: str) -> Categorical:
    where = f"{path}.choices"
    require(isinstance(parameter.choices, tuple | list), where, "must be a list", parameter.choices)
    count = len(parameter.choices)
    require(1 <= count <= MAX_CHOICES, where, f"must have between 1 and {MAX_CHOICES} elements", count)
    choices: list[Scalar] = []
    for index, choice in enumerate(parameter.choices):
        value = _value(argument, choice, f"{where}[{index}]")
        # `==`, not `is_same`: a list that holds both 1 and True would confuse every reader of it.
        require(value not in choices, f"{where}[{index}]", "must not repeat", choice)
        choices.append(value)
    default = parameter.default
    if default is not None or any(choice is None for choice in choices):
        possible = any(is_same(default, choice) for choice in choices)
        require(possible or default is None, f"{path}.default", f"must be one of {show(choices)}", default)
    return dataclasses.replace(parameter, choices=tuple(choices), when=_tuples(parameter.when))


_CHECKS: dict[str, Any] = {"float": _check_float, "integer": _check_integer, "categorical": _check_categorical}


def _tuples(when: Mapping[str, Sequence[Scalar]]) -> dict[str, tuple[Scalar, ...]]:
    return {name: tuple(allowed) for name, allowed in when.items()}


def _with_default(parameter: Parameter) -> Parameter:
    """The parameter with its default: the middle of the range, or the first choice, where none was given."""
    if parameter.default is not None:
        return parameter
    if isinstance(parameter, Categorical):
        return parameter if None in parameter.choices else dataclasses.replace(parameter, default=parameter.choices[0])
    if isinstance(parameter, Float):
        return dataclasses.replace(parameter, default=parameter.from_unit(0.5))
    return dataclasses.replace(parameter, default=parameter.from_unit(0.5))


def _value(argument: Argument | None, value: object, path: str) -> Scalar:
    """`value` as what the argument accepts."""
    if argument is None:
        if isinstance(value, str):
            return _text(value, path)
        if value is None or isinstance(value, bool):
            return value
        if not isinstance(value, int | float):
            raise SpaceError(path, f"must be a string, a number, true, false or null, got {show(value)}")
        return integer(value, path) if isinstance(value, int) else finite(value, path)
    if value is None and argument.optional:
        return None
    if argument.kind == "boolean":
        if not isinstance(value, bool):
            raise SpaceError(path, f"must be true or false, got {show(value)}")
        return value
    if argument.kind == "choice":
        if not isinstance(value, str) or value not in argument.choices:
            hint = did_you_mean(value, argument.choices)
            raise SpaceError(path, f"must be one of {', '.join(argument.choices)}, got {show(value)}{hint}")
        return value
    require(argument.kind in ("integer", "float"), path, "must be given by its elements [0] and [1]", value)
    number = integer(value, path) if argument.kind == "integer" else finite(value, path)
    _bounds(argument, number, path)
    return number


def _bounds(argument: Argument | None, value: float, path: str) -> None:
    if argument is None:
        return
    above = value > argument.low if argument.open_low else value >= argument.low
    below = value < argument.high if argument.open_high else value <= argument.high
    left, right = "(" if argument.open_low else "[", ")" if argument.open_high else "]"
    require(above and below, path, f"must be in {left}{argument.low:g}, {argument.high:g}{right}", value)


def _fixed(optimizer: str, fixed: object, parameters: Sequence[Parameter], breaches: Breaches) -> dict[str, Any]:
    """The fixed values; what is wrong with one is noted."""
    checked: dict[str, Any] = {}
    with breaches.noted():
        if not isinstance(fixed, Mapping):
            raise SpaceError("fixed", f"must be an object, got {show(fixed)}")
        require(len(fixed) <= MAX_PARAMETERS, "fixed", f"must have at most {MAX_PARAMETERS} values", len(fixed))
        searched = {parameter.name for parameter in parameters}
        for name, value in fixed.items():
            with breaches.noted():
                checked[name] = _fixed_value(optimizer, name, value, beside=searched | set(fixed), searched=searched)
    return checked


def _fixed_value(
    optimizer: str, name: object, value: object, *, beside: AbstractSet[object], searched: AbstractSet[str]
) -> Any:
    path = f"fixed.{name}" if isinstance(name, str) and len(name) <= MAX_TEXT else "fixed"
    argument = argument_of(optimizer, name, "fixed")
    require(name not in searched, path, "is searched as well", value)
    if argument is None or argument.kind != "pair":
        return _value(argument, value, path)
    pair = _pair(argument, value, path)
    elements = [element for element in (f"{name}[0]", f"{name}[1]") if element in beside]
    require(not elements, path, f"is also given as {', '.join(elements)}", value)
    return pair


def _pair(argument: Argument, value: object, path: str) -> tuple[float, ...]:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise SpaceError(path, f"must be a list of two numbers, got {show(value)}")
    numbers = tuple(finite(item, f"{path}[{index}]") for index, item in enumerate(value))
    for index, (element, number) in enumerate(zip(argument.elements, numbers, strict=True)):
        _bounds(element, number, f"{path}[{index}]")
    return numbers
