"""The parameters of lists of trials."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Query

from search_spaces.nearest import did_you_mean
from service.domain import Phase, TrialState
from service.errors import InvalidInput
from service.faults import Faults
from service.specification.phases import spaces_of
from service.store.repositories import (
    BY_NUMBER,
    PARAMETER_PREFIX,
    JobRepository,
    NumberRange,
    ParameterFilter,
    ParameterKey,
    TrialKey,
    TrialQuery,
    TrialSorting,
)
from service.store.session import Session

MAX_PARAMETERS_ASKED = 20
"""Each is one more condition of the query; by judgement, about as many as a large search space has parameters."""
_KEYS = [key.value for key in TrialKey]
_ORDER_PATTERN = rf"^-?({'|'.join(_KEYS)}|{re.escape(PARAMETER_PREFIX)}.+)$"


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A number, a range of them, or a text that is neither."""

    text: str
    range: NumberRange | None


async def _trial_query(
    state: Annotated[list[TrialState], Query(default_factory=list, description="Repeat it for several states.")],
    parameter: Annotated[
        list[str],
        Query(
            default_factory=list,
            max_length=MAX_PARAMETERS_ASKED,
            description="A value that a parameter has: `lr=1e-4..1e-2`, with both ends included, `lr=1e-4..`, "
            "`lr=..1e-2`, `lr=0.01` or `grafting=adam`. Repeat it for several, all of which must hold. A trial that "
            "does not have the parameter is not found.",
            examples=[["lr=1e-4..1e-2"]],
        ),
    ],
    phase: Annotated[Phase | None, Query(description="The phase whose trials are wanted.")] = None,
    value: Annotated[
        str | None,
        Query(
            max_length=100,
            description="The first objective at the last step: `0.1..0.3`, `..0.3`, `0.1..` or a number. A trial "
            "without one is not found.",
            examples=["..0.3"],
        ),
    ] = None,
) -> TrialQuery:
    return TrialQuery(
        states=state,
        phase=phase,
        value=None if value is None else _range("value", value),
        parameters=_parameters(parameter),
    )


async def _trial_order(
    order_by: Annotated[
        str,
        Query(
            max_length=200,
            description="`number`, `value`, `state`, `phase`, `step`, `seconds`, or a parameter, as `parameter.lr`; a "
            "minus before it: descending. Trials without a value, or without the parameter, come last.",
            examples=["-value"],
            json_schema_extra={"pattern": _ORDER_PATTERN},
        ),
    ] = str(TrialSorting()),
) -> TrialSorting:
    return order_of("order_by", order_by)


def order_of(field: str, text: str) -> TrialSorting:
    """The order that a text asks for. Raises: InvalidInput: it is none; names the field."""
    name = text.removeprefix("-")
    parameter = name.removeprefix(PARAMETER_PREFIX)
    if parameter and parameter != name:
        return TrialSorting(ParameterKey(parameter), is_descending=text.startswith("-"))
    if name not in _KEYS:
        known = ", ".join(_KEYS)
        raise InvalidInput(
            field, f"{text[:80]!r} must be {known} or {PARAMETER_PREFIX}NAME, with a minus for descending"
        )
    return TrialSorting(TrialKey(name), is_descending=text.startswith("-"))


def checked(
    session: Session, job_id: str, query: TrialQuery, *, order: TrialSorting = BY_NUMBER, field: str = "order_by"
) -> TrialQuery:
    """The query, if there is such a job with such parameters.

    Args:
        order: the one that is asked for, too, in the parameter `field`.

    Raises:
        NotFound: there is no such job.
        InvalidInput: no search space of the job has a parameter that is asked for; names it.
    """
    asked = [("parameter", wanted.name) for wanted in query.parameters]
    if isinstance(order.by, ParameterKey):
        asked.append((field, order.by.name))
    if not asked:
        JobRepository(session).check_exists(job_id)
        return query
    spaces = spaces_of(JobRepository(session).get(job_id).specification).values()
    known = sorted({parameter.name for space in spaces for parameter in space.parameters})
    faults = Faults()
    for where, name in asked:
        if name not in known:
            hint = did_you_mean(name, known)
            told = f"the job has no parameter {name[:80]!r} (known: {', '.join(known)}){hint}"
            faults.note(InvalidInput(where, told))
    faults.tell()
    return query


def _parameters(given: Sequence[str]) -> list[ParameterFilter]:
    found, faults = [], Faults()
    for asked in given:
        name, separator, text = asked.partition("=")
        with faults.noted():
            if not separator:
                raise InvalidInput("parameter", f"{asked[:80]!r} must be NAME=VALUE or NAME=LOW..HIGH")
            wanted = _read("parameter", text)
            found.append(ParameterFilter(name, wanted.text if wanted.range is None else wanted.range))
    faults.tell()
    return found


def _range(field: str, text: str) -> NumberRange:
    wanted = _read(field, text)
    if wanted.range is None:
        raise InvalidInput(field, f"{text[:80]!r} must be a number, or LOW..HIGH, LOW.. or ..HIGH")
    return wanted.range


def _read(field: str, text: str) -> _Wanted:
    """Reads a filter's text. Raises: InvalidInput: it is a range with impossible ends."""
    low_text, separator, high_text = text.partition("..")
    if not separator:
        number = _number(text)
        return _Wanted(text, None if number is None else NumberRange(number, number))
    ends = [None if not end else _number(end) for end in (low_text, high_text)]
    if not (low_text or high_text) or any(
        given and end is None for given, end in zip((low_text, high_text), ends, strict=True)
    ):
        raise InvalidInput(field, f"{text[:80]!r} must be LOW..HIGH, LOW.. or ..HIGH, with numbers as ends")
    low, high = ends
    if low is not None and high is not None and low > high:
        raise InvalidInput(field, f"{text[:80]!r}: {low:g} is more than {high:g}")
    return _Wanted(text, NumberRange(low, high))


def _number(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if math.isfinite(found) else None


TrialFilters = Annotated[TrialQuery, Depends(_trial_query)]
"""The filters of a request, which are to be `checked`."""

TrialOrderParameter = Annotated[TrialSorting, Depends(_trial_order)]
"""The order that a request asks for, which is to be `checked`."""
