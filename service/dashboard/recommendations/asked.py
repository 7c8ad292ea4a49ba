"""The reader's choices among recommendations: fields of the page's form, and addresses that ask for something else.

They are the filters of `GET /v1/recommendations`; a form sends its empty fields, too, which here are no filters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlencode

from fastapi import Depends, Query
from pydantic import BeforeValidator, Field

from service.api.dependencies import CallerDependency
from service.store.repositories import RecommendationQuery
from service.use_cases.found_recommendations import MAX_VERSIONS_ASKED, NamedField, version_asked
from trainers.config import MAX_COUNT

PATH = "/recommendations"
NAMES: tuple[NamedField, ...] = get_args(NamedField)
LABELS = {
    "objective": "Objective",
    "batch_size": "Batch size",
    "num_steps": "Steps",
    "precision": "Precision",
    "device": "Device",
    "world_size": "Ranks",
    "data_digest": "Data",
}
"""The filters beside the names, as people call them, in the order of the form."""


def _unless_empty(value: Any) -> Any:
    return None if value == "" else value


Name = Annotated[Annotated[str, Field(max_length=200)] | None, BeforeValidator(_unless_empty), Query()]
Count = Annotated[Annotated[int, Field(ge=1, le=MAX_COUNT)] | None, BeforeValidator(_unless_empty), Query()]
Device = Annotated[Literal["cpu", "cuda"] | None, BeforeValidator(_unless_empty), Query()]


async def _query(
    caller: CallerDependency,
    model: Name = None,
    workload: Name = None,
    fingerprint: Name = None,
    data_digest: Name = None,
    batch_size: Count = None,
    num_steps: Count = None,
    precision: Name = None,
    objective: Name = None,
    device: Device = None,
    world_size: Count = None,
    version: Annotated[list[str], Query(max_length=MAX_VERSIONS_ASKED)] = [],  # noqa: B006 - FastAPI copies it
    match: Literal["all", "nearest"] = "all",
    include: Literal["", "superseded"] = "",
) -> RecommendationQuery:
    return RecommendationQuery(
        project=caller.sees,
        model=model,
        workload=workload,
        fingerprint=fingerprint,
        data_digest=data_digest,
        batch_size=batch_size,
        num_steps=num_steps,
        precision=precision,
        objective=objective,
        device=device,
        world_size=world_size,
        versions=[version_asked(given.strip()) for given in version if given.strip()],
        wants_nearest=match == "nearest",
        includes_superseded=include == "superseded",
    )


Asked = Annotated[RecommendationQuery, Depends(_query)]


@dataclass(frozen=True, slots=True)
class Address:
    """The address of what is asked, and of others beside it."""

    pairs: Sequence[tuple[str, str]]
    """Names and values of the query."""

    @property
    def is_narrowed(self) -> bool:
        """True if recommendations may be left out by what was asked."""
        return any(value and name in (*NAMES, *LABELS, "version") for name, value in self.pairs)

    def without(self, name: str) -> str:
        """The first page of what is found without a filter."""
        return _to(self._others(name, "page"))

    def instead(self, name: str, value: object) -> str:
        """The first page of what is found with a filter's other value."""
        return _to([*self._others(name, "page"), (name, str(value))])

    def named(self, field: str, name: str) -> str:
        """The first page of what is found for another model, workload or fingerprint, with the other filters."""
        return _to([*self._others("name", *NAMES, "page"), (field, name)])

    def page(self, number: int) -> str:
        """Another page of the same."""
        return _to([*self._others("page"), *([("page", str(number))] if number > 1 else [])])

    def _others(self, *names: str) -> list[tuple[str, str]]:
        return [(name, value) for name, value in self.pairs if name not in names and value]


def _to(pairs: Sequence[tuple[str, str]]) -> str:
    return f"{PATH}?{urlencode(pairs)}" if pairs else PATH
