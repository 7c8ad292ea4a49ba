"""Further faults of a job some of whose fields cannot be read: names in the others, and training settings
that do not go with each other."""

from __future__ import annotations

import contextlib
import copy
import functools
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from pydantic import JsonValue, ValidationError

from service.api.problems.situations import invalid_fields
from service.api.request_body import Names, at, names_of
from service.api.schemas.common import FieldError
from service.api.schemas.jobs import JobCreate
from service.errors import InvalidInput, ServiceBusy, WorkloadNotDescribed
from service.specification.external.trials import EXTERNAL
from service.specification.planning import check_names
from trainers.workloads.registry import BUILT_IN

if TYPE_CHECKING:
    from service.api.preparation import Preparations


async def further_errors(request: Request, body: object, errors: Sequence[FieldError]) -> list[FieldError]:
    """The `errors_of_names` of a request; none where others keep all processes busy, of which it may need one."""
    if not isinstance(body, dict):
        return []
    work = functools.partial(errors_of_names, body, errors)
    if at(body, ("workload", "name")) in (None, EXTERNAL, *BUILT_IN):
        return await run_in_threadpool(work)
    preparations: Preparations = request.app.state.preparations
    with contextlib.suppress(ServiceBusy):
        return await preparations.do(f"the names in {json.dumps(body)}", work)
    return []


def errors_of_names(body: dict[str, JsonValue], errors: Sequence[FieldError]) -> list[FieldError]:
    """The errors that `check_names` finds and that have nothing to do with the fields that cannot be read.

    Args:
        errors: the errors of all fields that cannot be read.
    """
    rest = copy.deepcopy(body)
    removed = [_remove(rest, names_of(error.pointer or "")) for error in errors]
    specification = _read(rest)
    if isinstance(specification, ValidationError):  # as what is left lacks what was removed
        removed += [_remove(rest, tuple(map(str, one["loc"][:1]))) for one in specification.errors(include_url=False)]
        specification = _read(rest)
    if isinstance(specification, ValidationError):
        return []
    try:
        check_names(specification)
    except InvalidInput as error:
        found = invalid_fields(error, body)
        return [one for one in found if all(_is_apart(names_of(one.pointer or ""), place, rest) for place in removed)]
    except WorkloadNotDescribed:
        pass
    return []


def _read(body: dict[str, JsonValue]) -> JobCreate | ValidationError:
    """The job of a body, to which a workload is added where it has none; or what is wrong with it."""
    body.setdefault("workload", {"name": EXTERNAL})  # of which no options and metrics are known
    try:
        return JobCreate.model_validate(body)
    except ValidationError as error:
        return error


def _remove(body: JsonValue, place: Names) -> Names:
    """Removes what stands at a place, or where nothing does, what lacks it; a list is removed whole, as its others
    would move. Gives the place of what is gone."""
    for length in range(len(place), 0, -1):
        parent, name = at(body, place[: length - 1]), place[length - 1]
        if isinstance(parent, dict) and name in parent:
            del parent[name]
            return place[:length]
    return place


def _is_apart(place: Names, removed: Names, rest: JsonValue) -> bool:
    """True if an error at a place cannot come from what was removed: a misspelt field may be any that its object does
    not have."""
    parent = removed[:-1]
    if len(place) <= len(parent):
        return place != parent[: len(place)]
    return place[: len(parent)] != parent or at(rest, place[: len(parent) + 1]) is not None
