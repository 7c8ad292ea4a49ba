"""The parameters of lists of jobs."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Query

from service.api.dependencies import CallerDependency
from service.api.lists.query_times import Moment
from service.domain import JobState
from service.errors import InvalidInput
from service.store.repositories import Archived, JobQuery, TagFilter

MAX_TAGS_ASKED = 10
"""Each is one more condition of the query; by judgement, far more than a list is filtered by."""
Name = Query(max_length=200)


async def _job_query(
    caller: CallerDependency,
    state: Annotated[list[JobState], Query(default_factory=list, description="Repeat it for several states.")],
    tag: Annotated[
        list[str],
        Query(
            default_factory=list,
            max_length=MAX_TAGS_ASKED,
            description="A tag that the jobs have: `team=vision`, or with any value `team`. Repeat it for several, all "
            "of which they must have.",
            examples=[["team=vision"]],
        ),
    ],
    workload: Annotated[str | None, Name, Query(description="The name of the workload.")] = None,
    model: Annotated[str | None, Name, Query(description="Your own name of the model.")] = None,
    owner: Annotated[str | None, Name, Query(description="The name of the token that submitted them.")] = None,
    project: Annotated[
        str | None, Name, Query(description="The project whose jobs are wanted; for callers who see several.")
    ] = None,
    text: Annotated[
        str | None,
        Query(max_length=200, description="Stands in the name or the notes, in capitals or not."),
    ] = None,
    created_after: Annotated[Moment | None, Query(description="Submitted later than this.")] = None,
    created_before: Annotated[Moment | None, Query(description="Submitted earlier than this.")] = None,
    finished_after: Annotated[Moment | None, Query(description="Ended later than this.")] = None,
    finished_before: Annotated[Moment | None, Query(description="Ended earlier than this.")] = None,
    archived: Annotated[
        Archived, Query(description="`false`: without those that are archived; `true`: those alone; `all`: both.")
    ] = Archived.NO,
) -> JobQuery:
    return JobQuery(
        states=state,
        sees=caller.sees,
        # Empty is how a form sends a field that nobody has filled in.
        project=project or None,
        owner=owner or None,
        workload=workload or None,
        model=model or None,
        tags=[_tag(given) for given in tag if given],
        text=text or None,
        created_after=created_after,
        created_before=created_before,
        finished_after=finished_after,
        finished_before=finished_before,
        archived=archived,
    )


def _tag(given: str) -> TagFilter:
    name, separator, value = given.partition("=")
    if not name:
        raise InvalidInput("tag", f"{given[:80]!r} must be `name` or `name=value`")
    return TagFilter(name, value if separator else None)


JobFilters = Annotated[JobQuery, Depends(_job_query)]
