"""The typed client that waits for its answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Literal

import httpx

from service.api.schemas.code import CodeRead
from service.api.schemas.events import EventRead
from service.api.schemas.jobs import JobRead
from service.api.schemas.trials import CheckpointRead, OutputRead
from service.client.attempts import refusal
from service.client.declared import access as about_access
from service.client.declared import code as about_code
from service.client.declared import jobs as declared
from service.client.declared import recommendations as about_recommendations
from service.client.declared import webhooks as about_webhooks
from service.client.declared.code import known_code, packed, store_code
from service.client.downloads import fetch
from service.client.errors import ApiError, ServiceUnreachable
from service.client.requests import STREAM_TIMEOUT_SECONDS, TIMEOUT_SECONDS, Requests, answered, listed
from service.client.stream import followed
from service.client.waiting import JobWait
from service.domain import WeightsOf


class Client(Requests):
    """One service. Use it as a context manager, or close it."""

    submit = answered(declared.submit)
    estimate = answered(declared.estimate)
    job = answered(declared.job)
    cancel = answered(declared.cancel)
    delete = answered(declared.delete)
    archive = answered(declared.archive)
    unarchive = answered(declared.unarchive)
    clone = answered(declared.clone)
    each = answered(declared.each)
    pause = answered(declared.pause)
    resume = answered(declared.resume)
    change = answered(declared.change)
    trial = answered(declared.trial)
    trial_config = answered(declared.trial_config)
    propose_trial = answered(declared.propose_trial)
    change_trial = answered(declared.change_trial)
    stop_trial = answered(declared.stop_trial)
    retry_trial = answered(declared.retry_trial)
    checkpoints = answered(declared.checkpoints)
    recommendations = answered(about_recommendations.recommendations)
    recommendation = answered(about_recommendations.recommendation)
    one_recommendation = answered(about_recommendations.one_recommendation)
    written_recommendation = answered(about_recommendations.written_recommendation)
    recommend = answered(about_recommendations.recommend)
    insights = answered(declared.insights)
    health = answered(declared.health)
    report = answered(declared.report)
    workloads = answered(declared.workloads)
    search_spaces = answered(declared.search_spaces)
    liveness = answered(declared.liveness)
    readiness = answered(declared.readiness)
    jobs = listed(declared.jobs)
    trials = listed(declared.trials)
    measurements = listed(declared.measurements)
    logs = listed(declared.logs)
    add_webhook = answered(about_webhooks.add_webhook)
    enable_webhook = answered(about_webhooks.enable_webhook)
    remove_webhook = answered(about_webhooks.remove_webhook)
    deliveries = listed(about_webhooks.deliveries)
    redeliver = answered(about_webhooks.redeliver)
    test_webhook = answered(about_webhooks.test_webhook)
    webhooks = listed(about_webhooks.webhooks)
    code = listed(about_code.code)
    remove_code = answered(about_code.remove_code)
    tokens = listed(about_access.tokens)
    create_token = answered(about_access.create_token)
    revoke_token = answered(about_access.revoke_token)
    projects = listed(about_access.projects)
    create_project = answered(about_access.create_project)
    change_project = answered(about_access.change_project)
    audit = listed(about_access.audit)

    def wait(
        self,
        job_id: str,
        *,
        timeout_seconds: float | None = None,
        poll_seconds: float = 0.5,
        progress: bool | Callable[[JobRead], object] = False,
    ) -> JobRead:
        """The job, once it has ended.

        Args:
            progress: True: prints a line on standard error whenever a trial has ended or the state is another; or a
                function that is given the job then.

        Raises:
            WaitedTooLong: it has not after `timeout_seconds`.
        """
        waiting = JobWait(timeout_seconds=timeout_seconds, progress=progress)
        while waiting.goes_on(job := self.job(job_id)):
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
        path = declared.events_path(job_id)
        return followed(lambda last: self._stream(EventRead, path, last), after=after, give_up_seconds=give_up_seconds)

    def follow_logs(
        self, job_id: str, number: int, *, give_up_seconds: float = 60.0, **asked: str | int
    ) -> Iterator[OutputRead]:
        """The output of the ranks of a trial, as it comes, until the trial ends; as `events` and `logs`."""
        path = declared.logs_path(job_id, number)
        return followed(
            lambda last: self._stream(OutputRead, path, last, params=asked),
            after=None,
            give_up_seconds=give_up_seconds,
        )

    def send_code(self, directory: Path) -> CodeRead:
        """Sends a directory of code, unless the service has it already; a job names its `sha256`.

        A `.shampooignore`, or else a `.gitignore`, in the directory says what is left out; caches and Git's own files
        are left out always.

        Raises:
            InvalidInput: there is something in the directory that cannot be sent, or too much.
            ApiError: the service refused it.
        """
        archive = packed(directory)
        try:
            return self.call(known_code(archive.sha256))
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
        return self.call(store_code(archive))

    def download_checkpoint(self, job_id: str, number: int, checkpoint: CheckpointRead, directory: Path) -> None:
        """Fetches the files of a checkpoint into a directory, and checks them.

        Raises:
            ApiError: 404: it is gone, as newer ones are there or the trial has ended; 503.
            DamagedDownload
        """
        directory.mkdir(parents=True, exist_ok=True)
        for file in checkpoint.files:
            path = declared.checkpoint_path(job_id, number, checkpoint.name, file.name)
            try:
                response = fetch(self._http, path, directory / file.name, sha256=file.sha256)
            except httpx.TransportError as error:
                raise ServiceUnreachable(self.base_url, error) from error
            if not response.is_success:
                raise refusal(response, self.base_url)

    def download_weights(self, job_id: str, target: Path, *, side: WeightsOf = WeightsOf.RECOMMENDED) -> None:
        """Fetches the trained weights of a job's recommended config, or of its baseline's best, as a safetensors file.

        Raises:
            ApiError: 404: there are none, and why; 503.
            ServiceUnreachable: they did not come to their end.
        """
        try:
            response = fetch(self._http, declared.weights_path(job_id, side), target, sha256=None)
        except httpx.TransportError as error:
            raise ServiceUnreachable(self.base_url, error) from error
        if not response.is_success:
            raise refusal(response, self.base_url)

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
            with self._http.stream("GET", declared.export_path(job_id), params=params, timeout=timeout) as response:
                if not response.is_success:
                    response.read()
                    raise refusal(response, self.base_url)
                yield from response.iter_bytes()
        except httpx.TransportError as error:
            raise ServiceUnreachable(self.base_url, error) from error
