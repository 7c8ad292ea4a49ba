"""Jobs as records: deleted, archived, cloned; and what is done to many at once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Body, Depends, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import ValidationError

from service.access.audit import record_deed
from service.access.permitted import refuse_user_code
from service.api import examples, problems, submission
from service.api.conditional import IF_JOB_UNCHANGED
from service.api.dependencies import (
    AuthenticationDependency,
    CallerDependency,
    DataAreHere,
    DatabaseDependency,
    JobId,
    Now,
    SettingsDependency,
    TurnsDependency,
    WriteSession,
    address_of,
)
from service.api.job_reader import Reader
from service.api.preparation import CodeReaderDependency, DryRun, PreparationsDependency, Prepared, prepare
from service.api.schemas.jobs import JobCreate, JobRead, JobSubmitted
from service.api.schemas.many_jobs import JobIds, JobOutcome, JobOutcomes, JobPatch
from service.api.strict_json import refuse_repeated_names
from service.api.submission import SubmissionDependency
from service.errors import JobNotFound, ServiceError
from service.store.models import Job
from service.store.repositories import JobRepository
from service.store.session import Session
from service.use_cases import steer
from service.use_cases.keeping import deletion
from service.use_cases.keeping.clone import merged, submission_of
from service.use_cases.keeping.marks import set_archived

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


@router.delete(
    "/{job_id}",
    status_code=204,
    summary="Delete a job",
    responses={204: {"description": "It is gone."}, **problems.documented(403, 404, 409, 412, 422, 503)},
    dependencies=[IF_JOB_UNCHANGED],
)
def delete_job(session: WriteSession, now: Now, job_id: JobId) -> None:
    """Deletes a job that has ended, with its trials, curves, events, checkpoints, log and recommendation. This cannot
    be undone. The API stops showing it at once; a worker then removes what is left of it. An older recommendation that
    the job's had replaced holds again. Configs that later jobs took from it stay theirs, its device-hours count against
    the project's quota as before, and its `Idempotency-Key` may be used again. A job that has not ended is refused:
    cancel it first."""
    deletion.delete_job(session, job_id, now=now)


@router.post(
    "/{job_id}/archive",
    summary="Archive a job",
    dependencies=[IF_JOB_UNCHANGED],
    responses=problems.documented(403, 404, 412, 422, 503),
)
def archive_job(session: WriteSession, now: Now, reader: Reader, job_id: JobId) -> JobRead:
    """Hides a job from lists, unless they are requested with `archived`. Nothing else changes: it keeps running, and
    its recommendation holds."""
    return reader.one(session, set_archived(session, job_id, archived=True, now=now))


@router.post(
    "/{job_id}/unarchive",
    summary="Bring a job back",
    dependencies=[IF_JOB_UNCHANGED],
    responses=problems.documented(403, 404, 412, 422, 503),
)
def unarchive_job(session: WriteSession, now: Now, reader: Reader, job_id: JobId) -> JobRead:
    """Shows an archived job in lists again."""
    return reader.one(session, set_archived(session, job_id, archived=False, now=now))


async def _prepared_clone(
    job_id: JobId,
    settings: SettingsDependency,
    caller: CallerDependency,
    data_are_here: DataAreHere,
    database: DatabaseDependency,
    turns: TurnsDependency,
    preparations: PreparationsDependency,
    code_reader: CodeReaderDependency,
    patch: Annotated[
        JobPatch | None, Body(openapi_examples={"longer": {"summary": "With more trials", "value": examples.JOB_PATCH}})
    ] = None,
    dry_run: DryRun = False,
) -> Prepared:
    def read() -> JobCreate:
        with database.reading() as session:
            document = submission_of(JobRepository(session).get(job_id))
        changed = merged(document, {} if patch is None else patch.root)
        try:
            return JobCreate.model_validate(changed)
        except ValidationError as error:
            errors = [{**one, "loc": ("body", *one["loc"])} for one in error.errors(include_url=False)]
            raise problems.InvalidClone(errors, body=changed) from None

    async with turns.one():
        body = await run_in_threadpool(read)
    return await prepare(
        body, settings, caller, preparations, code_reader, data_are_here=data_are_here, dry_run=dry_run
    )


@router.post(
    "/{job_id}/clone",
    status_code=201,
    summary="Clone a job",
    dependencies=[Depends(refuse_repeated_names)],
    response_model=JobSubmitted,
    responses={**submission.RESPONSES, **problems.documented(404)},
)
def clone_job(
    prepared: Annotated[Prepared, Depends(_prepared_clone)], submitting: SubmissionDependency, job_id: JobId
) -> JobSubmitted | Response:
    """Submits a job like this one, with the fields of the body changed: the same name, model, tags, priority and
    specification else. It is checked as any submission, belongs to whoever clones it, and starts from nothing: trials,
    also those that users proposed, and notes stay with the original. Winners of earlier jobs are those that the
    original found, unless `pinned` asks for them anew; configs of models like its own are looked up anew.
    """
    return submitting.answer(prepared, cloned_from=job_id)


class _Many:
    """Does something to jobs one after the other, each in a transaction of its own."""

    def __init__(
        self,
        request: Request,
        database: DatabaseDependency,
        turns: TurnsDependency,
        authentication: AuthenticationDependency,
        caller: CallerDependency,
        settings: SettingsDependency,
        now: Now,
    ) -> None:
        self._request, self._database, self._turns, self._authentication = request, database, turns, authentication
        self._caller, self._settings, self._now = caller, settings, now

    async def each(self, jobs: JobIds, do: Callable[..., Job], *, action: str, runs_it: bool = False) -> JobOutcomes:
        """Applies a use case to each of the jobs, and gives the outcome for each.

        Args:
            do: a use case that takes a session, the job's id and the time.
            action: the name of the request for one job, in the audit trail.
            runs_it: whether the job may run again, so that the code that it names must be allowed.
        """
        found = []
        for job_id in dict.fromkeys(jobs.job_ids):
            try:
                if not await self._authentication.sees(self._caller, job_id):
                    raise JobNotFound(job_id)
                async with self._turns.one():
                    one = functools.partial(self._one, job_id, do, action=action, runs_it=runs_it)
                    job = await run_in_threadpool(one)
            except ServiceError as error:
                problem = problems.problem_of(error, instance=self._request.url.path)
                if problem is None:
                    raise
                found.append(JobOutcome(job_id=job_id, problem=problem))
            else:
                found.append(JobOutcome(job_id=job_id, state=job.state))
        return JobOutcomes(items=found)

    def _one(self, job_id: str, do: Callable[..., Job], *, action: str, runs_it: bool) -> Job:
        with self._database.writing() as session:
            if runs_it:
                self._check_code(session, job_id)
            job = do(session, job_id, now=self._now)
            record_deed(session, self._caller, action, job_id, address=address_of(self._request), now=self._now)
            return job

    def _check_code(self, session: Session, job_id: str) -> None:
        specification = JobRepository(session).get(job_id).specification
        refuse_user_code(specification.workload, specification.sampler, self._settings, caller=self._caller)


Many = Annotated[_Many, Depends(_Many)]
_MANY = problems.documented(403, 408, 413, 415, 422, 503)


@router.post(":pause", summary="Pause many jobs", dependencies=[Depends(refuse_repeated_names)], responses=_MANY)
async def pause_jobs(body: JobIds, many: Many) -> JobOutcomes:
    """Pauses each of up to 100 jobs, as the request for one does. One that is refused does not affect the others; the
    answer has the outcome of each. Repeating the request changes nothing more."""
    return await many.each(body, steer.pause_job, action="pause_job")


@router.post(":resume", summary="Resume many jobs", dependencies=[Depends(refuse_repeated_names)], responses=_MANY)
async def resume_jobs(body: JobIds, many: Many, settings: SettingsDependency) -> JobOutcomes:
    """Resumes each of up to 100 jobs, as the request for one does, and says what became of each."""
    resume = functools.partial(steer.resume_job, checkpoints_kept=settings.checkpoints_kept)
    return await many.each(body, resume, action="resume_job", runs_it=True)


@router.post(":cancel", summary="Cancel many jobs", dependencies=[Depends(refuse_repeated_names)], responses=_MANY)
async def cancel_jobs(body: JobIds, many: Many) -> JobOutcomes:
    """Cancels each of up to 100 jobs, as the request for one does, and says what became of each."""
    return await many.each(body, steer.cancel_job, action="cancel_job")
