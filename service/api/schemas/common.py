"""Bodies that belong to no resource: what all responses have in common, pages of lists, health, errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from pydantic import ConfigDict, Field, JsonValue

from service.described_model import DescribedModel

Item = TypeVar("Item")


class ReadModel(DescribedModel):
    """A response. A client reads it with `extra="ignore"`, so that fields can be added."""

    model_config = ConfigDict(frozen=True, extra="ignore", from_attributes=True, defer_build=True)


class Health(ReadModel):
    model_config = ConfigDict(json_schema_extra={"examples": [{"status": "ok", "version": "0.1.0"}]})

    status: str
    """`ok`."""
    version: str
    """The version of the service."""


class Readiness(ReadModel):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"status": "ready", "num_workers": 1, "checked": ["database", "migrations", "disk", "checkpoints"]}
            ]
        }
    )

    status: Literal["ready", "degraded"]
    """`degraded`: requests are served, but no worker is alive."""
    num_workers: int
    """Workers heard of lately; 0: jobs are accepted and wait."""
    checked: tuple[str, ...] = ()
    """All that is as it must be. Checkpoints in a store are tried out by the workers."""


JsonType: TypeAlias = Literal["object", "array", "string", "integer", "number", "boolean"]
"""A kind of value, as JSON Schema names it."""
TYPE_PREFIX = "urn:shampoo-tuner:problem:"
"""The beginning of the types of problems that are the project's own."""
NOT_DONE_YET = "not-done-yet"
"""The type of the problem that the service goes on with what it was asked for."""


class FieldError(ReadModel):
    """An error in one field."""

    field: str
    """The path of the field, e.g. `budget.num_trials` or `search_space.parameters[2].high`; or the name of a parameter
    of the query, or of a header."""
    pointer: str | None = None
    """The field of a body as a JSON Pointer (RFC 6901), e.g. `/budget/num_trials`."""
    message: str
    """The fault, for a person."""
    value: JsonValue = None
    """The value that was given, if it is small."""
    expected: list[JsonType] | None = None
    """The kinds of value that the field takes, where what was given is of none of them."""


class Problem(DescribedModel):
    """An error (RFC 9457, `application/problem+json`)."""

    model_config = ConfigDict(extra="allow", defer_build=True)

    type: str = "about:blank"
    """Names the situation for programs; stays the same over versions."""
    title: str
    """The situation in a few words, the same each time."""
    status: int
    """The answer's status."""
    detail: str
    """The error in words, for a person."""
    instance: str | None = None
    """The path of the request."""
    errors: list[FieldError] = Field(default_factory=list)
    """The fields at fault, if there are any."""


class Page(ReadModel, Generic[Item]):
    """A page of a list; `next_page_token` is null on the last one."""

    items: list[Item] = Field(description="The items in the order of the list.")
    next_page_token: str | None = Field(description="`page_token` of the next page; null: this is the last one.")


def of_list(example: Mapping[str, Any], *, always: str, large: str) -> Callable[[dict[str, Any]], None]:
    """Changes the schema of a single thing to that of a row in a list, which may lack any field but one."""

    def change(schema: dict[str, Any]) -> None:
        schema["required"] = [always]
        schema["examples"] = [{name: value for name, value in example.items() if name != large}]

    return change
