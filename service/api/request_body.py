"""Request bodies: what JSON can say and the store cannot keep, and the paths of fields.

A path comes from a validation error's location as `a.b[0]`, and leads to the value from there.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias, get_args, get_type_hints

from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError, model_validator

from service.described_model import StrictModel
from service.errors import InvalidInput
from service.faults import Faults

MAX_DEPTH = 32
"""Levels of arrays and objects in a request body; a job needs about seven."""

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
QUOTED = 80
"""Characters of an odd name that a path shows."""
LARGEST_VALUE = 200
"""Characters of JSON up to which a value is given back with its error."""

_NAME_END = re.compile(r"[.\[]")
LONGEST_NAME = 2000
"""Characters of a name up to which its place in a path is looked for: an answer has no room for longer ones."""
_PART = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]|\['([^']*)'\]")
_FIRST = "baselines[0]"
MAX_FAULTS = 20
"""Told at once of what cannot be stored."""
_JSON: TypeAdapter[JsonValue] = TypeAdapter(JsonValue)

Names: TypeAlias = tuple[str, ...]
"""Names and indices on the way to a place in a body."""


def join_field(path: str, part: str | int) -> str:
    """The field `part` of the field `path`: `a` and `b` give `a.b`, and with an index `a[0]`."""
    if isinstance(part, int):
        return f"{path}[{part}]"
    if not _PLAIN_NAME.fullmatch(part):
        return f"{path}[{part[:QUOTED]!a}]"
    return f"{path}.{part}" if path else part


def check_storable(value: object) -> None:
    """Checks a decoded JSON value for NUL characters, lone surrogates, NaN, infinities and excessive nesting.

    PostgreSQL's text holds no NUL, UTF-8 no lone surrogates, and JSON itself no NaN.

    Raises:
        InvalidInput: names the offending fields.
    """
    faults = Faults()
    for number, (field, problem) in enumerate(_unstorable(value, "", 0)):
        faults.note(InvalidInput(field or "body", problem))
        if number == MAX_FAULTS:
            break
    faults.tell()


class RequestModel(StrictModel):
    """A body of a request, whose text any database can keep."""

    @model_validator(mode="before")
    @classmethod
    def _check_storable(cls, value: Any) -> Any:
        check_storable(value)
        return value


class ChangeModel(RequestModel):
    """A body that changes something: one of its fields at least."""

    @model_validator(mode="before")
    @classmethod
    def _check_changes(cls, value: Any) -> Any:
        if value == {}:
            raise InvalidInput("body", f"must change something: {', '.join(cls.model_fields)}")
        return value


def _unstorable(value: object, field: str, depth: int) -> Iterator[tuple[str, str]]:
    """Paths of what cannot be stored, and why."""
    if depth > MAX_DEPTH:
        yield field, f"is nested deeper than {MAX_DEPTH} levels"
    elif isinstance(value, dict):
        for key, item in value.items():
            if problem := _text_problem(key):
                yield join_field(field, key), f"the name {problem}"
            yield from _unstorable_part(item, field, key, depth)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unstorable_part(item, field, index, depth)
    elif problem := _value_problem(value):
        yield field, problem


def _unstorable_part(item: object, field: str, part: str | int, depth: int) -> Iterator[tuple[str, str]]:
    """The same of what an object or an array has as `part`. Only what needs a path gets one: a body has many values."""
    if isinstance(item, dict | list):
        yield from _unstorable(item, join_field(field, part), depth + 1)
    elif problem := _value_problem(item):
        yield join_field(field, part), problem


def _value_problem(value: object) -> str | None:
    if isinstance(value, str):
        return _text_problem(value)
    if isinstance(value, float) and not math.isfinite(value):
        return f"must be a finite number, got {value}"
    return None


def _text_problem(text: str) -> str | None:
    if "\0" in text:
        return "must not contain the NUL character"
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        return "must be valid Unicode: it contains half of a surrogate pair"
    return None


def field_of(location: Sequence[str | int], body: object) -> str:
    """The path of a pydantic error's location in `body`, without the names of union members that pydantic puts in."""
    path, node = "", body
    if tuple(location[:2]) == ("baselines", 0) and _has_one_baseline(body):
        location = ("baseline", *location[2:])
    for index, part in enumerate(location):
        last = index == len(location) - 1
        if isinstance(node, Mapping):
            if part in node:
                path, node = join_field(path, part), node[part]
            elif last:
                path = join_field(path, part)  # the field that is missing
        elif isinstance(node, list) and isinstance(part, int) and part < len(node):
            path, node = join_field(path, part), node[part]
    return path


def field_as_sent(field: str, body: object) -> str:
    """The path that a field of a checked body has in the body as it was sent, which may say `baseline` for a list of
    one."""
    return f"baseline{field.removeprefix(_FIRST)}" if field.startswith(_FIRST) and _has_one_baseline(body) else field


def _has_one_baseline(body: object) -> bool:
    return isinstance(body, Mapping) and "baseline" in body and "baselines" not in body


def fields_at(kind: Any, location: Sequence[str | int]) -> list[str]:
    """The fields that an object at a pydantic error's location has in a body of the type `kind`; empty: any."""
    kinds = list(_kinds_with_fields(kind))
    for part in location:
        of_union = [one for one in kinds if one.__name__ == part]  # pydantic puts in the name of a member
        if of_union:
            kinds = of_union
        elif isinstance(part, str):
            inner = (_fields(one)[part] for one in kinds if part in _fields(one))
            kinds = [found for annotation in inner for found in _kinds_with_fields(annotation)]
    return list(dict.fromkeys(name for one in kinds for name in _fields(one)))


def _kinds_with_fields(annotation: Any) -> Iterator[type]:
    """The models and dataclasses in an annotation: of the elements of a list, of the members of a union."""
    if isinstance(annotation, type) and (issubclass(annotation, BaseModel) or dataclasses.is_dataclass(annotation)):
        yield annotation
    for argument in get_args(annotation):
        yield from _kinds_with_fields(argument)


@functools.cache
def _fields(kind: type) -> dict[str, Any]:
    """The annotations of its fields by name."""
    if issubclass(kind, BaseModel):
        return {name: field.annotation for name, field in kind.model_fields.items()}
    hints = get_type_hints(kind)
    return (
        {field.name: hints[field.name] for field in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else {}
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Spot:
    """A place in a body."""

    pointer: str
    """Its place, as a JSON Pointer (RFC 6901). Half a surrogate pair in a name, which no answer can hold, is escaped
    there as in JSON: `\\ud800`."""
    value: JsonValue
    """The value there, if it is small; None: there is none, or it is too large."""


def spot_of(body: object, field: str) -> Spot:
    """The place of a path in a body, or where it would be. A name may hold what a path is made of, as `betas[0]`."""
    if field in ("", "body"):
        return Spot("", None if field == "body" else small(body))
    node: Any = body
    rest, pointer = field, ""
    is_there = True
    while rest:
        name: str | int | None = _name_at_start(rest, node) if isinstance(node, Mapping) else None
        if name is not None:
            taken = len(str(name))
        else:
            match = _PART.match(rest)
            if match is None:
                return Spot(pointer, None)
            plain, index, quoted = match.groups()
            name, taken = (int(index) if index else plain or _unquoted(quoted, node)), match.end()
        is_in_list = isinstance(node, list) and isinstance(name, int) and name < len(node)
        is_there = is_in_list or (isinstance(node, Mapping) and name in node)
        node = node[name] if is_there else None
        told = str(name).encode("utf-8", "backslashreplace").decode()
        pointer += "/" + told.replace("~", "~0").replace("/", "~1")
        rest = rest[taken:].removeprefix(".")
    return Spot(pointer, small(node) if is_there else None)


def names_of(pointer: str) -> Names:
    """The names on the way that a JSON Pointer tells."""
    return tuple(name.replace("~1", "/").replace("~0", "~") for name in pointer.split("/")[1:])


def at(body: object, place: Names) -> Any:
    """The value at a place in a decoded body; None: there is none."""
    for name in place:
        if isinstance(body, list) and name.isdecimal() and int(name) < len(body):
            body = body[int(name)]
        elif isinstance(body, dict):
            body = body.get(name)
        else:
            return None
    return body


def _name_at_start(path: str, node: Mapping[str, Any]) -> str | None:
    """The longest name in an object with which a path begins, whole; None: with none.

    Each end that a name can have is looked up. To look at each name would take seconds where a body has many, as each
    of many faults asks.
    """
    ends = [len(path), *(match.start() for match in reversed([*_NAME_END.finditer(path, 1, LONGEST_NAME)]))]
    return next((path[:end] for end in ends if path[:end] in node), None)


def _unquoted(quoted: str, node: object) -> str:
    """The name in an object that a path writes with escapes, as `join_field` does; itself, where there is none."""
    names = node if isinstance(node, Mapping) else ()
    return next((name for name in names if ascii(name[:QUOTED])[1:-1] == quoted), quoted)


def small(value: object) -> JsonValue:
    """`value` if it is JSON that can be shown in an error, else None."""
    try:
        text = json.dumps(value, allow_nan=False)
        text.encode()
        if len(text) > LARGEST_VALUE or "\\ud" in text.lower():
            return None
        return _JSON.validate_python(value)
    except (TypeError, ValueError, RecursionError, ValidationError):
        return None
