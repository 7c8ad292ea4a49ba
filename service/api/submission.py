"""Submission of a job that was prepared: what is answered to whoever sends a new one, or a clone of another."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Response

from service.api import examples, problems
from service.api.dependencies import CallerDependency, DeedDependency, IdempotencyKey, Now, WriteSession
from service.api.job_reader import Reader
from service.api.preparation import DryRun, Prepared
from service.api.schemas.jobs import JobEstimate, JobSubmitted
from service.specification.estimate_lines import warning_lines
from service.use_cases import submit
from service.use_cases.estimating import estimates

RESPONSES: dict[int | str, dict[str, Any]] = {
    201: {
        "description": "The job waits for a worker.",
        "headers": {"Location": {"description": "The job's path.", "schema": {"type": "string"}}},
        "links": {
            name: {
                "operationId": operation,
                "parameters": {"job_id": "$response.body#/id"},
                "description": description,
            }
            for name, operation, description in (
                ("job", "read_job", "The job, to see how far it has come."),
                ("trials", "list_trials", "Its trials."),
                ("recommendation", "read_recommendation", "What it recommends, once it has ended."),
                ("cancel", "cancel_job", "Ends it."),
                ("clone", "clone_job", "Makes another one like it."),
                ("delete", "delete_job", "Deletes it, once it has ended."),
            )
        },
    },
    200: {
        "model": JobSubmitted | JobEstimate,
        "description": "The job that an earlier request with this `Idempotency-Key` made; or, with `dry_run`, "
        "what the job would cost.",
        "content": {"application/json": {"example": examples.JOB_ESTIMATE}},
        "headers": {"Idempotent-Replayed": {"description": "`true`", "schema": {"type": "string"}}},
    },
    **problems.documented(403, 408, 413, 415, 422, 503),
}
"""Responses of the endpoints that make jobs."""


class JobSubmission:
    """Makes the job of a request, or tells what it would cost."""

    def __init__(
        self,
        session: WriteSession,
        caller: CallerDependency,
        deed: DeedDependency,
        now: Now,
        reader: Reader,
        response: Response,
        idempotency_key: IdempotencyKey = None,
        dry_run: DryRun = False,
    ) -> None:
        self._session, self._caller, self._deed, self._now = session, caller, deed, now
        self._reader, self._response = reader, response
        self._idempotency_key, self._dry_run = idempotency_key, dry_run

    def answer(self, prepared: Prepared, *, cloned_from: str | None = None) -> JobSubmitted | Response:
        """The job, which is stored, or with `dry_run` its estimate.

        Args:
            cloned_from: the job whose specification it was made from.
        """
        self._deed.target = None
        if self._dry_run:
            estimate = estimates.estimate_job(
                self._session,
                prepared.plan,
                project=self._caller.project,
                memory=prepared.memory,
                of_model=prepared.model,
                price=prepared.price,
                shape=prepared.shape,
            )
            return Response(JobEstimate.of(estimate).model_dump_json(), media_type="application/json")
        body = prepared.body
        job, is_new = submit.create_job(
            self._session,
            body.specification,
            name=body.name,
            model=body.model,
            of_model=prepared.model,
            plan=prepared.plan,
            tags=body.tags,
            notes=body.notes or None,
            priority=body.priority,
            project=self._caller.project,
            owner=self._caller.name,
            price=prepared.price,
            cloned_from=cloned_from,
            idempotency_key=self._idempotency_key,
            now=self._now,
        )
        self._response.headers["Location"] = f"/v1/jobs/{job.id}"
        if is_new:
            self._deed.target = job.id
        else:
            self._response.status_code = 200
            self._response.headers["Idempotent-Replayed"] = "true"
        warnings = [] if prepared.memory is None else warning_lines(prepared.memory)
        return JobSubmitted(**dict(self._reader.one(self._session, job)), warnings=warnings)


SubmissionDependency = Annotated[JobSubmission, Depends(JobSubmission, scope="function")]
