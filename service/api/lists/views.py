"""Views of the rows of a list: without what is large, in full, or some fields alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from fastapi import Query
from pydantic import BaseModel

from search_spaces.nearest import did_you_mean
from service.errors import InvalidInput
from service.faults import Faults


class ViewName(StrEnum):
    """The name of a view."""

    BASIC = "basic"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class View:
    """The fields of each row that a list tells."""

    fields: frozenset[str]


ViewParameter = Annotated[
    ViewName,
    Query(description="`basic`: without the largest field, `specification` of a job and `config` of a trial; `full`."),
]
FieldsParameter = Annotated[
    str | None,
    Query(
        max_length=2000,
        description="Only these fields of each row, separated by commas, beside its id or number. With it, `view` says "
        "nothing.",
        examples=["state"],
    ),
]


def view_of(model: type[BaseModel], *, always: str, large: str) -> Callable[..., Awaitable[View]]:
    """A dependency that reads which fields of a model's rows are asked for.

    Args:
        always: the field that each row has.
        large: the one that is left out unless it is asked for.
    """

    async def read(view: ViewParameter = ViewName.BASIC, fields: FieldsParameter = None) -> View:
        known = list(model.model_fields)
        if fields is None:
            return View(frozenset(known) - ({large} if view is ViewName.BASIC else set()))
        asked, faults = [name.strip() for name in fields.split(",")], Faults()
        for name in asked:
            if name not in known:
                hint = did_you_mean(name, known) or f" (known: {', '.join(known)})"
                faults.note(InvalidInput("fields", f"there is no field {name[:80]!r}{hint}"))
        faults.tell()
        return View(frozenset([always, *asked]))

    return read
