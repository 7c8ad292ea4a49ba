"""The requests of the typed client."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import httpx

from service.api.schemas.catalogue import SearchSpaceList, SearchSpaceRead, WorkloadList, WorkloadRead
from service.api.schemas.checkpoints import CheckpointList, CheckpointRead
from service.api.schemas.common import Readiness
from service.api.schemas.jobs import (
    EventRead,
    JobEstimate,
    JobRead,
    MeasurementPage,
    MeasurementRead,
    Page,
    TrialConfigRead,
    TrialRead,
)
from service.api.schemas.many_jobs import JobOutcome, JobOutcomes
from service.api.schemas.output import OutputPage, OutputRead
from service.api.schemas.recommendations import RecommendationList, RecommendationRead
from service.client.code import CodeRequests
from service.client.downloads import fetch
from service.client.errors import ServiceUnreachable, WaitedTooLong
from service.client.requests import STREAM_TIMEOUT_SECONDS, TIMEOUT_SECONDS
from service.client.stream import followed
from service.client.webhooks import WebhookRequests
from service.domain import JobState, Phase, TrialState
from service.specification.job import JobSpecification


class Client(WebhookRequests, CodeRequests):
    """One service. Use it as a context manager, or close it."""

    def submit(
        self,
        specification: JobSpecification | Mapping[str, Any],
        *,
        name: str | None = None,
        model: str | None = None,
        tags: Mapping[str, str] | None = None,
        priority: int | None = None,
        idempotency_key: str | None = None,
    ) -> JobRead:
        """Submits a job. A repeated `idempotency_key` gives the job it made before.

        Raises:
            ApiError: the service refused it; the problem names the field.
        """
        if isinstance(specification, JobSpecification):
            specification = specification.model_dump(mode="json")
        body = dict(specification)
        if name is not None:
            body["name"] = name
        if model is not None:
            body["model"] = model
        if tags:
            body["tags"] = {**body.get("tags", {}), **tags}
        if priority is not None:
            body["priority"] = priority
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key is not None else {}
        return self._read(JobRead, "POST", "/v1/jobs", body=body, headers=headers)

    def estimate(self, specification: JobSpecification | Mapping[str, Any]) -> JobEstimate:
        """The cost of a job at most; nothing is stored.

        Raises:
            ApiError: the service would refuse it; the problem names the field.
        """
        if isinstance(specification, JobSpecification):
            specification = specification.model_dump(mode="json")
        return self._read(JobEstimate, "POST", "/v1/jobs", params={"dry_run": "true"}, body=dict(specification))

    def jobs(self, *, states: Sequence[JobState] = (), **asked: str | int | Sequence[str] | None) -> Iterator[JobRead]:
        """Jobs, newest first unless asked otherwise; pages are asked for as they are needed.

        Args:
            asked: further parameters of `GET /v1/jobs`: `workload`, `model`, `tag`, `text`, `archived`, `order_by`, ...
                None: not asked for.
        """
        given = {name: value for name, value in asked.items() if value is not None}
        return self._items(
            Page[JobRead], "/v1/jobs", {"view": "full", "state": [state.value for state in states], **given}
        )

    def job(self, job_id: str) -> JobRead:
        """Raises: ApiError (404)."""
        return self._read(JobRead, "GET", _job_path(job_id))

    def cancel(self, job_id: str) -> JobRead:
        """Raises: ApiError (404; 409: it had finished)."""
        return self._read(JobRead, "POST", f"{_job_path(job_id)}/cancel")

    def delete(self, job_id: str) -> None:
        """Deletes a job that has ended, for good. Raises: ApiError (404; 409: it has not ended)."""
        self._send("DELETE", _job_path(job_id))

    def archive(self, job_id: str) -> JobRead:
        """Has lists leave a job out, unless they are asked for it. Raises: ApiError (404)."""
        return self._read(JobRead, "POST", f"{_job_path(job_id)}/archive")

    def unarchive(self, job_id: str) -> JobRead:
        """Has lists show an archived job again. Raises: ApiError (404)."""
        return self._read(JobRead, "POST", f"{_job_path(job_id)}/unarchive")

    def clone(
        self, job_id: str, changes: Mapping[str, Any] | None = None, *, idempotency_key: str | None = None
    ) -> JobRead:
        """Submits a job like another one; `changes`: the fields that it has otherwise, as a merge patch.

        Raises:
            ApiError: 404; 422: the problem names the field.
        """
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key is not None else {}
        return self._read(JobRead, "POST", f"{_job_path(job_id)}/clone", body=dict(changes or {}), headers=headers)

    def each(self, verb: Literal["pause", "resume", "cancel"], job_ids: Sequence[str]) -> list[JobOutcome]:
        """Does to each of up to 100 jobs what the method of that name does to one; what became of each."""
        return self._read(JobOutcomes, "POST", f"/v1/jobs:{verb}", body={"job_ids": list(job_ids)}).items

    def pause(self, job_id: str) -> JobRead:
        """Pauses a job; one that runs is `paused` when its run has ended.

        Raises:
            ApiError: 404; 409: it had finished.
        """
        return self._read(JobRead, "POST", f"{_job_path(job_id)}/pause")

    def resume(self, job_id: str) -> JobRead:
        """Goes on with a paused job, or a finished one whose budget was raised.

        Raises:
            ApiError: 404; 409: it has finished and its budget is spent.
        """
        return self._read(JobRead, "POST", f"{_job_path(job_id)}/resume")

    def change(
        self,
        job_id: str,
        *,
        name: str | None = None,
        tags: Mapping[str, str] | None = None,
        priority: int | None = None,
        notes: str | None = None,
        budget: Mapping[str, Any] | None = None,
    ) -> JobRead:
        """Changes a job: what is given, and of its budget the fields that are given; all else stays.

        Raises:
            ApiError: 404; 422: the problem names the field.
        """
        given = {"name": name, "tags": tags, "priority": priority, "notes": notes, "budget": budget}
        body = {field: value for field, value in given.items() if value is not None}
        return self._read(JobRead, "PATCH", _job_path(job_id), body=body)

    def trials(
        self,
        job_id: str,
        *,
        states: Sequence[TrialState] = (),
        phase: Phase | None = None,
        parameters: Sequence[str] = (),
        **asked: str | int | None,
    ) -> Iterator[TrialRead]:
        """A job's trials, by number unless asked otherwise.

        Args:
            parameters: values that they have, e.g. `lr=1e-4..1e-2`.
            asked: further parameters of the list: `value`, `order_by`; None: not asked for.
        """
        given = {name: value for name, value in {"phase": phase, **asked}.items() if value is not None}
        which = {"state": [state.value for state in states], "parameter": list(parameters), **given}
        return self._items(Page[TrialRead], f"{_job_path(job_id)}/trials", {"view": "full", **which})

    def trial(self, job_id: str, number: int) -> TrialRead:
        """Raises: ApiError (404)."""
        return self._read(TrialRead, "GET", f"{_job_path(job_id)}/trials/{number}")

    def trial_config(self, job_id: str, number: int) -> TrialConfigRead:
        """The config of a trial, to paste. Raises: ApiError (404)."""
        return self._read(TrialConfigRead, "GET", f"{_job_path(job_id)}/trials/{number}/config")

    def propose_trial(
        self,
        job_id: str,
        parameters: Mapping[str, Any],
        *,
        phase: Phase = Phase.SEARCH,
        optimizer: str | None = None,
        beyond_bounds: bool = False,
        idempotency_key: str | None = None,
    ) -> TrialRead:
        """Has a config tried next; parameters left out take their defaults. A finished job thereby goes on.

        `optimizer` says of which baseline, where the job has several. With `beyond_bounds`, numbers may lie beyond the
        search space's ranges, as far as the optimizer accepts them.

        Raises:
            ApiError: 404; 422: the problem names the parameter; 409: the job has finished, and its budget leaves no
                time.
        """
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key is not None else {}
        body = {"phase": phase.value, "parameters": dict(parameters), "beyond_bounds": beyond_bounds}
        body.update({} if optimizer is None else {"optimizer": optimizer})
        return self._read(TrialRead, "POST", f"{_job_path(job_id)}/trials", body=body, headers=headers)

    def stop_trial(self, job_id: str, number: int) -> TrialRead:
        """Cancels a trial; one that trains, at its next measurement. Raises: ApiError (404; 409: it had ended)."""
        return self._read(TrialRead, "POST", f"{_job_path(job_id)}/trials/{number}/stop")

    def retry_trial(self, job_id: str, number: int) -> TrialRead:
        """Queues a pruned, failed or cancelled trial again, to be trained to its end.

        Raises:
            ApiError: 404; 409: it has not ended so, it is a fork, whose beginning is gone, or the job has finished and
                its budget leaves no time.
        """
        return self._read(TrialRead, "POST", f"{_job_path(job_id)}/trials/{number}/retry")

    def measurements(
        self, job_id: str, number: int, *, after_step: int = -1, **asked: str | int | Sequence[str]
    ) -> Iterator[MeasurementRead]:
        """The measurements of a trial, by step.

        Args:
            asked: further parameters of `GET /v1/jobs/{job_id}/trials/{number}/measurements`: `metric`, ...
        """
        following: int | None = after_step
        while following is not None:
            path = f"{_job_path(job_id)}/trials/{number}/measurements"
            page = self._read(MeasurementPage, "GET", path, params={**asked, "after_step": following})
            yield from page.items
            following = page.next_after_step

    def checkpoints(self, job_id: str, number: int) -> list[CheckpointRead]:
        """The checkpoints of a trial that are there now, the newest first. Raises: ApiError (404, 503)."""
        return self._read(CheckpointList, "GET", f"{_job_path(job_id)}/trials/{number}/checkpoints").items

    def download_checkpoint(self, job_id: str, number: int, checkpoint: CheckpointRead, directory: Path) -> None:
        """Fetches the files of a checkpoint into a directory, and checks them.

        Raises:
            ApiError: 404: it is gone, as newer ones are there or the trial has ended; 503.
            DamagedDownload
        """
        directory.mkdir(parents=True, exist_ok=True)
        for file in checkpoint.files:
            path = f"{_job_path(job_id)}/trials/{number}/checkpoints/{checkpoint.name}/{file.name}"
            try:
                response = fetch(self._http, path, directory / file.name, sha256=file.sha256)
            except httpx.TransportError as error:
                raise ServiceUnreachable(self.base_url, error) from error
            if not response.is_success:
                raise self._error(response)

    def export(
        self,
        job_id: str,
        *,
        table: Literal["trials", "measurements"],
        table_format: Literal["csv", "jsonl", "parquet"] = "csv",
    ) -> Iterator[bytes]:
        """The file of a job's trials or measurements, in pieces, as the service reads them.

        Raises:
            ApiError: 404.
            ServiceUnreachable: also in the middle of the file, which is then of no use.
        """
        params = {"table": table, "format": table_format}
        timeout = httpx.Timeout(TIMEOUT_SECONDS, read=STREAM_TIMEOUT_SECONDS)
        try:
            with self._http.stream("GET", f"{_job_path(job_id)}/export", params=params, timeout=timeout) as response:
                if not response.is_success:
                    response.read()
                    raise self._error(response)
                yield from response.iter_bytes()
        except httpx.TransportError as error:
            raise ServiceUnreachable(self.base_url, error) from error

    def recommendations(self, workload: str | None = None, **asked: str | int) -> list[RecommendationRead]:
        """The recommendations that hold for all that is asked, the best first.

        Args:
            workload: its name; None: any.
            asked: further parameters of `GET /v1/recommendations`: `model`, `fingerprint`, `batch_size`, ...

        Raises:
            ApiError: 404: there is no such model, workload or fingerprint; the problem names those there are.
        """
        params = asked if workload is None else {"workload": workload, **asked}
        return self._read(RecommendationList, "GET", "/v1/recommendations", params=params).items

    def recommendation(self, job_id: str) -> RecommendationRead:
        """Raises: ApiError (404: there is none yet)."""
        return self._read(RecommendationRead, "GET", f"{_job_path(job_id)}/recommendation")

    def workloads(self) -> list[WorkloadRead]:
        return self._read(WorkloadList, "GET", "/v1/workloads").items

    def search_spaces(self) -> list[SearchSpaceRead]:
        return self._read(SearchSpaceList, "GET", "/v1/search-spaces").items

    def readiness(self) -> Readiness:
        """Raises: ApiError (503: not ready), ServiceUnreachable."""
        return self._read(Readiness, "GET", "/readyz")

    def wait(self, job_id: str, *, timeout_seconds: float | None = None, poll_seconds: float = 0.5) -> JobRead:
        """The job, once it has ended.

        Raises:
            WaitedTooLong: it has not after `timeout_seconds`.
        """
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while not (job := self.job(job_id)).state.is_final:
            if deadline is not None and timeout_seconds is not None and time.monotonic() > deadline:
                raise WaitedTooLong(job, timeout_seconds)
            time.sleep(poll_seconds)
        return job

    def events(
        self, job_id: str | None = None, *, after: int | None = None, give_up_seconds: float = 60.0
    ) -> Iterator[EventRead]:
        """Events as they come: of a job from its beginning to its end, or of all jobs from now on.

        A lost connection is made again, without losing or repeating an event.

        Args:
            after: begin after this event id.
            give_up_seconds: without the service for so long, its error is raised.

        Raises:
            ApiError, ServiceUnreachable
        """
        path = f"{_job_path(job_id)}/events" if job_id is not None else "/v1/events"
        return followed(lambda last: self._stream(EventRead, path, last), after=after, give_up_seconds=give_up_seconds)

    def logs(self, job_id: str, number: int, **asked: str | int) -> Iterator[OutputRead]:
        """What the ranks of a trial have printed, the oldest first.

        Args:
            asked: parameters of `GET /v1/jobs/{job_id}/trials/{number}/logs`: `rank`, `stream`, `since`, `tail`.
        """
        path, following = f"{_job_path(job_id)}/trials/{number}/logs", dict(asked)
        while True:
            page = self._read(OutputPage, "GET", path, params=following)
            yield from page.items
            if page.next_after is None:
                return
            following["after"] = page.next_after

    def follow_logs(
        self, job_id: str, number: int, *, give_up_seconds: float = 60.0, **asked: str | int
    ) -> Iterator[OutputRead]:
        """What the ranks of a trial print, as it comes, until the trial ends; as `events` and `logs`."""
        path = f"{_job_path(job_id)}/trials/{number}/logs"
        return followed(
            lambda last: self._stream(OutputRead, path, last, params=asked),
            after=None,
            give_up_seconds=give_up_seconds,
        )


def _job_path(job_id: str) -> str:
    return f"/v1/jobs/{quote(job_id, safe='')}"
