"""Requests that no endpoint takes: pydantic's errors as fields with messages in the project's own words."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from http import HTTPStatus
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.responses import Response

from search_spaces.nearest import did_you_mean, near_name
from service.api.problems.documents import invalid, malformed, problem_response
from service.api.problems.unread_jobs import further_errors
from service.api.problems.written_forms import main_field, meant_form, right_form
from service.api.request_body import Names, at, field_of, fields_at, join_field, names_of, small, spot_of
from service.api.schemas.common import FieldError, JsonType
from service.api.schemas.jobs import JobCreate
from service.evidence.in_words.wording import counted, joined
from service.faults import MAX_LOOKED_AT
from service.specification.training import SAID_ELSEWHERE
from trainers.workload.user_workload import REFERENCE_PATTERN

UNKNOWN_FIELD = ("extra_forbidden", "unexpected_keyword_argument")
"""The names that pydantic gives to a field that is none, of a model and of a dataclass."""
ONE_OF_SOME = ("literal_error", "enum")
"""The names that it gives to a value which is none of those there are."""
EXPECTED: Mapping[str, JsonType] = {
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type", "dataclass_type"), "object"),
    **dict.fromkeys(("list_type", "tuple_type", "set_type"), "array"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "integer"),
    **dict.fromkeys(("float_type", "float_parsing"), "number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "boolean"),
    "string_type": "string",
}
"""The kind of value that is wanted, for each name that pydantic gives to one of another kind."""
_WRITTEN_OTHERWISE = frozenset[JsonType | None]({"object", "array", "integer", "number", "boolean"})
"""Kinds of which a message says how they are written."""
SAYS_WHAT_STANDS_THERE = ("missing", "value_error", *UNKNOWN_FIELD)
"""The names of errors whose messages need no value beside them: there is none, or it is the field's name."""


@dataclass(frozen=True, slots=True)
class _Fault:
    """One of the ways in which the value of a field is none of what the field takes."""

    message: str
    choices: tuple[str, ...] = ()
    """The values that there are, as Python writes them; empty: the fault is another."""


class InvalidClone(RequestValidationError):
    """A patch turns the copy of a job into something that is no job."""


async def invalid_request(request: Request, error: Exception) -> Response:
    """The problem of a request that FastAPI found invalid."""
    assert isinstance(error, RequestValidationError)
    found = error.errors()[:MAX_LOOKED_AT]
    if found and found[0]["type"] == "json_invalid":
        message = _position(str(error.body), found[0]["loc"][-1], found[0]["ctx"]["error"])
        return malformed(message, instance=request.url.path)
    if any(one["loc"] == ("body",) and isinstance(one.get("input"), bytes) for one in found):
        return problem_response(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "unsupported-media-type",
            "The body is not JSON",
            f"Content-Type must be application/json, got {request.headers.get('content-type', 'none')!r}",
            instance=request.url.path,
            errors=[FieldError(field="Content-Type", message="must be application/json")],
        )
    kind = _kind_of_body(request, error)
    errors = errors_of_fields(found, error.body, kind)
    if isinstance(kind, type) and issubclass(kind, JobCreate):
        errors += await further_errors(request, error.body, errors)
    return invalid(errors, instance=request.url.path)


def errors_of_fields(found: Sequence[Mapping[str, Any]], body: object, kind: Any) -> list[FieldError]:
    """The errors of the fields that pydantic found invalid, one for each field.

    Args:
        found: pydantic's, whose locations begin with `body` where they are of the body.
        kind: what the body was to be; None: there is to be none.
    """
    faults: dict[str, list[_Fault]] = {}
    expected: dict[str, set[JsonType | None]] = {}
    values: dict[str, Any] = {}
    to_be_told, forms = dict[str, str](), dict[str, str]()
    listed = set[str]()
    of_body = set[str]()
    for one in found:
        if _is_of_another_kind(one, found):
            continue
        source, *path = one["loc"]
        field = field_of(path, body) if source == "body" else reduce(join_field, path, "")
        field = field or str(source)
        if source == "body":
            of_body.add(field)
        given = faults.setdefault(field, [])
        place = names_of(spot_of(body, field).pointer) if source == "body" else ()
        if one["type"] in UNKNOWN_FIELD:
            message, known = _unknown_field(kind, path, body, place)
            message += known if known not in listed else ""  # once in an answer
            listed.add(known)
        else:
            message = _message(one)
        fault = _Fault(message, _choices(one))
        if fault not in given:
            given.append(fault)
        values[field] = None if one["type"] == "missing" else small(one.get("input"))
        expected.setdefault(field, set()).add(EXPECTED.get(one["type"]))
        if one["type"] not in SAYS_WHAT_STANDS_THERE:
            to_be_told[field] = _got(one.get("input"))
        if EXPECTED.get(one["type"]) in _WRITTEN_OTHERWISE:
            forms[field] = right_form(kind, place, one.get("input"))
        elif one["type"] == "missing":
            forms[field] = right_form(kind, place, None)
    return [
        FieldError(
            field=field,
            message=", or ".join(_merged(given))
            + (did_you_mean(values[field], _words(given)) or to_be_told.get(field, "") + forms.get(field, "")),
            value=values[field],
            expected=_kinds(expected[field]),
            pointer=spot_of(body, field).pointer if field in of_body else None,
        )
        for field, given in faults.items()
    ]


def _kind_of_body(request: Request, error: RequestValidationError) -> Any:
    """The type of body that the endpoint takes; None: it takes none."""
    if isinstance(error, InvalidClone):
        return JobCreate
    body = request.scope["route"].body_field
    return None if body is None else body.field_info.annotation


def _is_of_another_kind(error: Mapping[str, Any], found: Sequence[Mapping[str, Any]]) -> bool:
    """True if what is told is that an object is none of a few words, where an object may stand, too: its own faults are
    told."""
    parent = error["loc"][:-1]
    others = (one for one in found if one is not error)
    is_object = error["type"] in ONE_OF_SOME and isinstance(error.get("input"), Mapping)
    return is_object and any(one["loc"][: len(parent)] == parent for one in others)


def _message(error: Mapping[str, Any]) -> str:
    """The error of a field, in the words of the project's own checks."""
    match error["type"]:
        case "missing":
            return "is required"
        case "model_type" | "model_attributes_type" | "dict_type" | "dataclass_type":
            return "must be an object"
        case "too_short" | "string_too_short" if isinstance(error.get("input"), str):
            return "must not be empty" if error["ctx"]["min_length"] == 1 else error["msg"]
        case "too_long" | "string_too_long" if isinstance(error.get("input"), str):
            return f"must have at most {error['ctx']['max_length']} characters"
        case "too_long" | "too_short":
            context = error["ctx"]
            bound = ("most", context["max_length"]) if error["type"] == "too_long" else ("least", context["min_length"])
            return f"must have at {bound[0]} {counted(bound[1], 'item')}, got {context['actual_length']:,}"
        case "string_pattern_mismatch" if error["ctx"]["pattern"] == f"^{REFERENCE_PATTERN}$":
            return "must be a class of your own as module:Class"
        case "value_error":
            return str(error["ctx"]["error"])
    return re.sub(r"^(Input|String|Value) should ", "must ", error["msg"])


def _kinds(expected: Collection[JsonType | None]) -> list[JsonType] | None:
    """The kinds that a field takes, by its errors; None: one of them is about a value of the right kind."""
    kinds = sorted(kind for kind in expected if kind is not None)
    return kinds if len(kinds) == len(expected) else None


def _got(value: object) -> str:
    """The end of a message about a value that is text, a number or nothing, and short."""
    if value is None or isinstance(value, bool):
        return f", got {json.dumps(value)}"
    return f", got {value!r}" if isinstance(value, str | int | float) and small(value) is not None else ""


def _choices(error: Mapping[str, Any]) -> tuple[str, ...]:
    """The values that the error says there are, as Python writes them; empty: it is about something else."""
    # Its context has them in one text alone, `'tpe', 'gp' or 'cmaes'`; no value of a field has a comma or an "or".
    return tuple(re.split(", | or ", error["ctx"]["expected"])) if error["type"] in ONE_OF_SOME else ()


def _words(faults: Sequence[_Fault]) -> list[str]:
    """The words among the values that a field takes, one of which may have been meant."""
    return [choice[1:-1] for fault in faults for choice in fault.choices if choice.startswith("'")]


def _merged(faults: Sequence[_Fault]) -> list[str]:
    """The messages on a field, with the values that there are in one list."""
    if sum(1 for fault in faults if fault.choices) < 2:
        return [fault.message for fault in faults]
    choices = joined((choice for fault in faults for choice in fault.choices), "or")
    return [f"must be {choices}", *(fault.message for fault in faults if not fault.choices)]


def _unknown_field(kind: Any, path: Sequence[str | int], body: object, place: Names) -> tuple[str, str]:
    """The error of a field that a body of this kind does not have. It says which name was probably meant, or where a
    field of that name stands; or else there is a list of the fields that there are, to be added to it.

    Args:
        path: pydantic's.
        place: the place of the field in the body.
    """
    *parents, name = path
    known = fields_at(kind, parents)
    hint = (
        _other_name(kind, parents, name)
        or _meant_field(kind, name, known, body, place)
        or _elsewhere(kind, parents, name)
    )
    return f"there is no such field{hint}", "" if hint or not known else f" (known: {', '.join(known)})"


def _other_name(kind: Any, parents: Sequence[str | int], name: str | int) -> str:
    """A hint at what says the same in a job, for names that trials' configs and other libraries have; "": none."""
    if not (isinstance(kind, type) and issubclass(kind, JobCreate)):
        return ""
    if name == "direction" and list(parents[:1]) == ["objectives"]:
        return ": the metric has its direction"
    return f": {SAID_ELSEWHERE[str(name)]}" if name in SAID_ELSEWHERE and list(parents) in ([], ["training"]) else ""


def _meant_field(kind: Any, name: str | int, known: Sequence[str], body: object, place: Names) -> str:
    """The end of a message about a field that its object does not have: the one that was meant; "": unknown."""
    *parents, _ = place or ("",)
    value = at(body, place)
    near = near_name(name, known)
    if near is not None:
        return f": did you mean {near!r}?{meant_form(kind, (*parents, near), value)}"
    main = main_field(kind, parents, value)
    is_missing = main is not None and main not in at(body, tuple(parents))
    return f": did you mean {main!r}?" if is_missing else ""


def _elsewhere(kind: Any, parents: Sequence[str | int], name: str | int) -> str:
    """A hint at the right place of a misplaced field: at the top instead of in a section, or in the only section that
    has it instead of at the top; "": there is none."""
    of_top = fields_at(kind, [])
    if parents and name in of_top:
        return f": did you mean '{name}' beside '{parents[0]}'?"
    sections = [] if parents else [section for section in of_top if name in fields_at(kind, [section])]
    if len(sections) == 1:
        return f": did you mean '{sections[0]}.{name}'?"
    return ""


def _position(document: str, position: int, message: str) -> str:
    """The place where malformed JSON goes wrong, for a person."""
    before = document[:position]
    line, column = before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1
    return f"is not JSON (line {line}, column {column}): {message}"
