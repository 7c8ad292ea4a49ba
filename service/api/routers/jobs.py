"""Jobs: submit, list, read, change, pause, resume, cancel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from service.api import examples, problems
from service.api.dependencies import (
    CallerDependency,
    DeedDependency,
    IdempotencyKey,
    JobId,
    Now,
    ReadSession,
    SettingsDependency,
    TrialMemoryDependency,
    WriteSession,
)
from service.api.one_thread import OneThreadRoute
from service.api.paging import DEFAULT_PAGE_SIZE, PageSize, PageToken, cut, decode_token, encode_token
from service.api.preparation import DryRun, PreparedJob, permitted_specification
from service.api.schemas.jobs import JobChange, JobEstimate, JobRead, Page
from service.api.strict_json import refuse_repeated_names
from service.domain import JobState
from service.store.models import Job
from service.store.repositories import JobRepository
from service.store.session import Session
from service.use_cases import estimates, steer, submit
from service.use_cases.progress import TrialMemory, progress_of
from service.use_cases.waiting import waiting_of

router = APIRouter(prefix="/v1/jobs", tags=["jobs"], route_class=OneThreadRoute)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Makes what is answered of jobs."""

    now: datetime
    silence_seconds: float
    memory: TrialMemory

    def one(self, session: Session, job: Job) -> JobRead:
        return self.all(session, [job])[0]

    def all(self, session: Session, found: Sequence[Job]) -> list[JobRead]:
        progress = progress_of(session, found, now=self.now, memory=self.memory)
        waiting = waiting_of(session, found, now=self.now, silence_seconds=self.silence_seconds)
        return [JobRead.of(job, progress[job.id], waiting[job.id]) for job in found]


async def _reader(now: Now, settings: SettingsDependency, memory: TrialMemoryDependency) -> _Reader:
    return _Reader(now, settings.lease_seconds, memory)


Reader = Annotated[_Reader, Depends(_reader)]


@router.post(
    "",
    status_code=201,
    summary="Submit a job",
    dependencies=[Depends(refuse_repeated_names)],
    response_model=JobRead,
    responses={
        201: {
            "description": "The job waits for a worker.",
            "headers": {"Location": {"description": "The job's path.", "schema": {"type": "string"}}},
        },
        200: {
            "model": JobRead | JobEstimate,
            "description": "The job that an earlier request with this `Idempotency-Key` made; or, with `dry_run`, "
            "what the job would cost.",
            "content": {"application/json": {"example": examples.JOB_ESTIMATE}},
            "headers": {"Idempotent-Replayed": {"description": "`true`", "schema": {"type": "string"}}},
        },
        **problems.documented(403, 408, 413, 415, 422, 503),
    },
)
def create_job(
    prepared: PreparedJob,
    session: WriteSession,
    caller: CallerDependency,
    deed: DeedDependency,
    now: Now,
    reader: Reader,
    response: Response,
    idempotency_key: IdempotencyKey = None,
    dry_run: DryRun = False,
) -> JobRead | Response:
    """Queues a tuning job: one workload, one search, and the baselines that it is compared with."""
    body, plan = prepared.body, prepared.plan
    deed.target = None
    if dry_run:
        estimate = estimates.estimate_job(
            session,
            plan,
            project=caller.project,
            memory=prepared.memory,
            fingerprint=prepared.fingerprint,
            price=prepared.price,
        )
        return Response(estimate.model_dump_json(), media_type="application/json")
    job, is_new = submit.create_job(
        session,
        body.specification,
        name=body.name,
        model=body.model,
        fingerprint=prepared.fingerprint,
        plan=plan,
        tags=body.tags,
        priority=body.priority,
        project=caller.project,
        owner=caller.name,
        price=prepared.price,
        idempotency_key=idempotency_key,
        now=now,
    )
    response.headers["Location"] = f"/v1/jobs/{job.id}"
    if is_new:
        deed.target = job.id
    else:
        response.status_code = 200
        response.headers["Idempotent-Replayed"] = "true"
    return reader.one(session, job)


@router.get("", summary="List jobs", responses=problems.documented(422, 503))
def list_jobs(
    session: ReadSession,
    caller: CallerDependency,
    reader: Reader,
    state: Annotated[list[JobState], Query(default_factory=list, description="Repeat it for several states.")],
    workload: Annotated[str | None, Query(max_length=200, description="Its name.")] = None,
    model: Annotated[str | None, Query(max_length=200, description="Your own name of the model.")] = None,
    page_size: PageSize = DEFAULT_PAGE_SIZE,
    page_token: PageToken = None,
) -> Page[JobRead]:
    """Jobs, newest first."""
    before_id = decode_token("job", page_token) if page_token is not None else None
    rows = JobRepository(session).page(
        states=state, project=caller.sees, workload=workload, model=model, before_id=before_id, limit=page_size + 1
    )
    found, token = cut(rows, page_size, lambda job: encode_token("job", job.id))
    return Page[JobRead](items=reader.all(session, found), next_page_token=token)


@router.get("/{job_id}", summary="Read a job", responses=problems.documented(404, 422, 503))
def read_job(session: ReadSession, reader: Reader, job_id: JobId) -> JobRead:
    """A job with its progress."""
    return reader.one(session, JobRepository(session).get(job_id))


@router.patch(
    "/{job_id}",
    summary="Change a job",
    dependencies=[Depends(refuse_repeated_names)],
    responses=problems.documented(403, 404, 408, 413, 415, 422, 503),
)
def change_job(body: JobChange, session: WriteSession, now: Now, reader: Reader, job_id: JobId) -> JobRead:
    """Changes the name, the tags, the priority or the budget; what is left out stays.

    A running job goes on with another budget within seconds: its run ends in order and starts again, trials from their
    last checkpoints. A finished job goes on when it is resumed. The number of trials cannot fall below those that have
    begun, in any phase.
    """
    steer.change_job(session, job_id, **body.changes, now=now)
    return reader.one(session, steer.change_budget(session, job_id, body.budget.changes, now=now))


@router.post("/{job_id}/pause", summary="Pause a job", responses=problems.documented(403, 404, 409, 422, 503))
def pause_job(session: WriteSession, now: Now, reader: Reader, job_id: JobId) -> JobRead:
    """Pauses a job until it is resumed. One that runs becomes `paused` when its run has ended, within seconds; until
    then `requested` says `pause`. Trials keep their checkpoints; paused time is no wall-clock time.
    """
    return reader.one(session, steer.pause_job(session, job_id, now=now))


@router.post(
    "/{job_id}/resume",
    summary="Resume a job",
    dependencies=[Depends(permitted_specification)],
    responses=problems.documented(403, 404, 409, 422, 503),
)
def resume_job(session: WriteSession, now: Now, reader: Reader, job_id: JobId) -> JobRead:
    """Puts a paused job back in the queue, and a finished one, cancelled ones included, whose budget is not spent:
    raise it with PATCH first. Trials that have ended stay as they are, but for confirmation trials that were cancelled
    with the job or cut off by the end of its time: they begin again. At the end the recommendation is made anew.
    """
    return reader.one(session, steer.resume_job(session, job_id, now=now))


@router.post("/{job_id}/cancel", summary="Cancel a job", responses=problems.documented(403, 404, 409, 422, 503))
def cancel_job(session: WriteSession, now: Now, reader: Reader, job_id: JobId) -> JobRead:
    """Cancels a job and its unfinished trials; what trains stops within seconds. Finished trials stay."""
    return reader.one(session, steer.cancel_job(session, job_id, now=now))
