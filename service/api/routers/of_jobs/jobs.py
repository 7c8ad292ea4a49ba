"""Jobs: submit, list, read, change, pause, resume, cancel."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from service.api import conditional, problems, submission
from service.api.conditional import (
    IF_JOB_UNCHANGED,
    IfMatch,
    TaggedDependency,
    changeable_of_job,
    refuse_if_changed,
)
from service.api.dependencies import JobId, Now, ReadSession, SettingsDependency, WriteSession
from service.api.job_reader import Reader
from service.api.lists.job_filters import JobFilters
from service.api.lists.views import View, view_of
from service.api.one_thread import OneThreadRoute
from service.api.paging import DEFAULT_PAGE_SIZE, PageSize, PageToken, cut, decode_place, encode_place
from service.api.preparation import PreparedJob, permitted_job
from service.api.schemas.common import Page
from service.api.schemas.jobs import JobChange, JobItem, JobRead, JobSubmitted
from service.api.strict_json import refuse_repeated_names
from service.api.submission import SubmissionDependency
from service.store.repositories import JobListRepository, JobOrder, JobRepository
from service.use_cases import steer

SORTED_BY: dict[JobOrder, type] = {
    JobOrder.NEWEST: str,
    JobOrder.OLDEST: str,
    JobOrder.LAST_FINISHED: datetime,
    JobOrder.FIRST_FINISHED: datetime,
    JobOrder.HIGHEST_PRIORITY: int,
    JobOrder.LOWEST_PRIORITY: int,
    JobOrder.NAME: str,
    JobOrder.NAME_BACKWARDS: str,
}
"""The kind of value that each order goes by."""

router = APIRouter(prefix="/v1/jobs", tags=["jobs"], route_class=OneThreadRoute)

_JobPage = Page[JobRead]
"""Held: pydantic forgets a class that nobody has, and takes longer to make it again than to write a page."""


@router.post(
    "",
    status_code=201,
    summary="Submit a job",
    dependencies=[Depends(refuse_repeated_names)],
    response_model=JobSubmitted,
    responses=submission.RESPONSES,
)
def create_job(prepared: PreparedJob, submitting: SubmissionDependency) -> JobSubmitted | Response:
    """Queues a tuning job: one workload, one search, and the baselines that it is compared with."""
    return submitting.answer(prepared)


@router.get("", summary="List jobs", response_model=Page[JobItem], responses=problems.documented(422, 503))
def list_jobs(
    session: ReadSession,
    reader: Reader,
    query: JobFilters,
    view: Annotated[View, Depends(view_of(JobRead, always="id", large="specification"))],
    order_by: Annotated[
        JobOrder, Query(description="A minus: descending. Jobs that have not ended come last by `finished_at`.")
    ] = JobOrder.NEWEST,
    page_size: PageSize = DEFAULT_PAGE_SIZE,
    page_token: PageToken = None,
) -> Response:
    """Jobs, newest first unless told otherwise, without those that are archived. They come without their
    `specification`: `view=full` has it.
    """
    kind = f"job {order_by}"
    after = None if page_token is None else decode_place(kind, page_token, SORTED_BY[order_by])
    rows = JobListRepository(session).page(query, order=order_by, after=after, limit=page_size + 1)
    found, token = cut(rows, page_size, lambda job: encode_place(kind, order_by.place_of(job)))
    page = _JobPage.model_construct(items=reader.all(session, found), next_page_token=token)
    content = page.model_dump_json(
        by_alias=True, include={"items": {"__all__": set(view.fields)}, "next_page_token": True}
    )
    return Response(content, media_type="application/json")


@router.get(
    "/{job_id}",
    summary="Read a job",
    response_model=JobRead,
    responses={**conditional.RESPONSES, **problems.documented(404, 422, 503)},
)
def read_job(session: ReadSession, reader: Reader, tagged: TaggedDependency, job_id: JobId) -> Response:
    """A job with its progress."""
    job = JobRepository(session).get(job_id)
    return tagged.answer(reader.one(session, job), changeable_of_job(job))


@router.patch(
    "/{job_id}",
    summary="Change a job",
    dependencies=[Depends(refuse_repeated_names)],
    responses=problems.documented(403, 404, 408, 412, 413, 415, 422, 503),
)
def change_job(
    body: JobChange, session: WriteSession, now: Now, reader: Reader, job_id: JobId, if_match: IfMatch = None
) -> JobRead:
    """Changes the name, the tags, the notes, the priority or the budget; fields left out stay as they are. A running
    job takes up a changed budget within seconds: its run ends in order and starts again, trials from their last
    checkpoints. A finished job takes it up when it is resumed. The number of trials cannot fall below those that have
    begun, in any phase."""
    refuse_if_changed(session, job_id, if_match)
    steer.change_job(session, job_id, **body.changes, now=now)
    return reader.one(session, steer.change_budget(session, job_id, body.budget.changes, now=now))


@router.post(
    "/{job_id}/pause",
    summary="Pause a job",
    dependencies=[IF_JOB_UNCHANGED],
    responses=problems.documented(403, 404, 409, 412, 422, 503),
)
def pause_job(session: WriteSession, now: Now, reader: Reader, job_id: JobId) -> JobRead:
    """Pauses a job until it is resumed. A running job becomes `paused` when its run has ended, within seconds; until
    then `requested` is `pause`. Trials keep their checkpoints; paused time does not count as wall-clock time."""
    return reader.one(session, steer.pause_job(session, job_id, now=now))


@router.post(
    "/{job_id}/resume",
    summary="Resume a job",
    dependencies=[Depends(permitted_job), IF_JOB_UNCHANGED],
    responses=problems.documented(403, 404, 409, 412, 422, 503),
)
def resume_job(session: WriteSession, settings: SettingsDependency, now: Now, reader: Reader, job_id: JobId) -> JobRead:
    """Puts a paused job back in the queue, and a finished one, cancelled ones included, whose budget is not spent:
    raise it with PATCH first. Ended trials stay as they are, except those that the spent budget cut off and
    confirmation trials that ended with the job: they continue from their checkpoints if these are kept, otherwise they
    begin again. At the end the recommendation is made anew."""
    job = steer.resume_job(session, job_id, checkpoints_kept=settings.checkpoints_kept, now=now)
    return reader.one(session, job)


@router.post(
    "/{job_id}/cancel",
    summary="Cancel a job",
    dependencies=[IF_JOB_UNCHANGED],
    responses=problems.documented(403, 404, 409, 412, 422, 503),
)
def cancel_job(session: WriteSession, now: Now, reader: Reader, job_id: JobId) -> JobRead:
    """Cancels a job and its unfinished trials; training stops within seconds. Finished trials stay. A job that had
    succeeded and was resumed to try more is `succeeded` again."""
    return reader.one(session, steer.cancel_job(session, job_id, now=now))
