"""The typed client whose answers are awaited: the same requests as `Client`, on `asyncio`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import wraps
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Concatenate, Literal, ParamSpec, Self, TypeVar, cast

import httpx
from pydantic import BaseModel

from service.api.schemas.code import CodeRead
from service.api.schemas.events import EventRead
from service.api.schemas.jobs import JobRead
from service.api.schemas.trials import CheckpointRead, OutputRead
from service.client.attempts import Attempts, read_answer, refusal
from service.client.calls import Call, Pages, Params, reading
from service.client.declared import access as about_access
from service.client.declared import code as about_code
from service.client.declared import jobs as declared
from service.client.declared import recommendations as about_recommendations
from service.client.declared import webhooks as about_webhooks
from service.client.declared.code import known_code, packed, store_code
from service.client.downloads import fetch_later
from service.client.errors import ApiError, ServiceUnreachable
from service.client.requests import GIVE_UP_SECONDS, STREAM_TIMEOUT_SECONDS, TIMEOUT_SECONDS, Connecting
from service.client.stream import SseParser, StreamOver, followed_later
from service.client.waiting import JobWait
from service.domain import WeightsOf

Read = TypeVar("Read", bound=BaseModel)
Result = TypeVar("Result")
Item = TypeVar("Item")
P = ParamSpec("P")


class AsyncRequests:
    """A connection to one service."""

    def __init__(
        self,
        base_url: str | None = None,
        *,
        token: str | None = None,
        give_up_seconds: float = GIVE_UP_SECONDS,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """Prepares a client; nothing is asked yet. Arguments and errors: those of `Client`."""
        connecting = Connecting.to(base_url, token)
        self.base_url = connecting.base_url
        self._give_up_seconds = give_up_seconds
        self._timeout_seconds = TIMEOUT_SECONDS
        self._http = httpx.AsyncClient(
            base_url=self.base_url,
            timeout=TIMEOUT_SECONDS,
            transport=transport,
            headers=connecting.headers,
            trust_env=connecting.trusts_environment,
            verify=connecting.verifies,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def call(self, call: Call[Result]) -> Result:
        """The answer to a request, as `Client.call`.

        Raises:
            ApiError, ServiceUnreachable
        """
        attempts = Attempts(
            call, self.base_url, give_up_seconds=self._give_up_seconds, timeout_seconds=self._timeout_seconds
        )
        while True:
            try:
                response = await self._http.request(
                    call.method, call.path, params=call.params, content=call.content, headers=call.sent_headers
                )
            except httpx.TransportError as error:
                pause = attempts.after_error(error)
            else:
                found = attempts.after_answer(response)
                if found is None:
                    return cast("Result", read_answer(call, response, self.base_url))
                pause = found
            await asyncio.sleep(pause)

    async def pages(self, pages: Pages[Item]) -> AsyncIterator[Item]:
        """The items of a list, page after page.

        Raises:
            ApiError, ServiceUnreachable
        """
        part = await self.call(pages.page())
        for item in part.items:
            yield item
        while part.following is not None:
            part = await self.call(pages.page(part.following))
            for item in part.items:
                yield item

    async def read(
        self,
        schema: type[Read],
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Read:
        """The answer to one request, for what has no method of its own; as `Client.read`."""
        call = Call(reading(schema), method, path, params=params or {}, body=body, headers=headers or {})
        return await self.call(call)

    async def _stream(
        self, schema: type[Read], path: str, after: int | None, *, params: Params | None = None
    ) -> AsyncIterator[Read | None]:
        headers = {"Accept": "text/event-stream"}
        if after is not None:
            headers["Last-Event-ID"] = str(after)
        timeout, parser = httpx.Timeout(TIMEOUT_SECONDS, read=STREAM_TIMEOUT_SECONDS), SseParser()
        try:
            async with self._http.stream("GET", path, params=params, headers=headers, timeout=timeout) as response:
                if response.status_code == httpx.codes.NO_CONTENT:
                    raise StreamOver
                if not response.is_success:
                    await response.aread()
                    raise refusal(response, self.base_url)
                yield None
                async for chunk in response.aiter_bytes():
                    for _, data in parser.feed(chunk):
                        yield schema.model_validate_json(data)
        except httpx.TransportError as error:
            raise ServiceUnreachable(self.base_url, error) from error


def awaited(declared: Callable[P, Call[Result]]) -> Callable[Concatenate[AsyncRequests, P], Awaitable[Result]]:
    """A method that sends a request and gives its answer."""

    @wraps(declared)
    async def method(client: AsyncRequests, /, *args: P.args, **kwargs: P.kwargs) -> Result:
        return await client.call(declared(*args, **kwargs))

    return method


def listed_later(declared: Callable[P, Pages[Item]]) -> Callable[Concatenate[AsyncRequests, P], AsyncIterator[Item]]:
    """A method that gives the items of a list, and asks for its pages as they are needed."""

    @wraps(declared)
    def method(client: AsyncRequests, /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[Item]:
        return client.pages(declared(*args, **kwargs))

    return method


class AsyncClient(AsyncRequests):
    """One service. Use it as an asynchronous context manager, or close it."""

    submit = awaited(declared.submit)
    estimate = awaited(declared.estimate)
    job = awaited(declared.job)
    cancel = awaited(declared.cancel)
    delete = awaited(declared.delete)
    archive = awaited(declared.archive)
    unarchive = awaited(declared.unarchive)
    clone = awaited(declared.clone)
    each = awaited(declared.each)
    pause = awaited(declared.pause)
    resume = awaited(declared.resume)
    change = awaited(declared.change)
    trial = awaited(declared.trial)
    trial_config = awaited(declared.trial_config)
    propose_trial = awaited(declared.propose_trial)
    change_trial = awaited(declared.change_trial)
    stop_trial = awaited(declared.stop_trial)
    retry_trial = awaited(declared.retry_trial)
    checkpoints = awaited(declared.checkpoints)
    recommendations = awaited(about_recommendations.recommendations)
    recommendation = awaited(about_recommendations.recommendation)
    one_recommendation = awaited(about_recommendations.one_recommendation)
    written_recommendation = awaited(about_recommendations.written_recommendation)
    recommend = awaited(about_recommendations.recommend)
    insights = awaited(declared.insights)
    health = awaited(declared.health)
    report = awaited(declared.report)
    workloads = awaited(declared.workloads)
    search_spaces = awaited(declared.search_spaces)
    liveness = awaited(declared.liveness)
    readiness = awaited(declared.readiness)
    jobs = listed_later(declared.jobs)
    trials = listed_later(declared.trials)
    measurements = listed_later(declared.measurements)
    logs = listed_later(declared.logs)
    add_webhook = awaited(about_webhooks.add_webhook)
    enable_webhook = awaited(about_webhooks.enable_webhook)
    remove_webhook = awaited(about_webhooks.remove_webhook)
    deliveries = listed_later(about_webhooks.deliveries)
    redeliver = awaited(about_webhooks.redeliver)
    test_webhook = awaited(about_webhooks.test_webhook)
    webhooks = listed_later(about_webhooks.webhooks)
    code = listed_later(about_code.code)
    remove_code = awaited(about_code.remove_code)
    tokens = listed_later(about_access.tokens)
    create_token = awaited(about_access.create_token)
    revoke_token = awaited(about_access.revoke_token)
    projects = listed_later(about_access.projects)
    create_project = awaited(about_access.create_project)
    change_project = awaited(about_access.change_project)
    audit = listed_later(about_access.audit)

    async def send_code(self, directory: Path) -> CodeRead:
        """Sends a directory's code as `Client.send_code` does."""
        archive = await asyncio.to_thread(packed, directory)
        try:
            return await self.call(known_code(archive.sha256))
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
        return await self.call(store_code(archive))

    async def download_checkpoint(self, job_id: str, number: int, checkpoint: CheckpointRead, directory: Path) -> None:
        """Fetches the files of a checkpoint into a directory, and checks them; as `Client.download_checkpoint`."""
        directory.mkdir(parents=True, exist_ok=True)
        for file in checkpoint.files:
            path = declared.checkpoint_path(job_id, number, checkpoint.name, file.name)
            try:
                response = await fetch_later(self._http, path, directory / file.name, sha256=file.sha256)
            except httpx.TransportError as error:
                raise ServiceUnreachable(self.base_url, error) from error
            if not response.is_success:
                raise refusal(response, self.base_url)

    async def download_weights(self, job_id: str, target: Path, *, side: WeightsOf = WeightsOf.RECOMMENDED) -> None:
        """Fetches the trained weights of a winner as a safetensors file; as `Client.download_weights`."""
        try:
            response = await fetch_later(self._http, declared.weights_path(job_id, side), target, sha256=None)
        except httpx.TransportError as error:
            raise ServiceUnreachable(self.base_url, error) from error
        if not response.is_success:
            raise refusal(response, self.base_url)

    async def wait(
        self,
        job_id: str,
        *,
        timeout_seconds: float | None = None,
        poll_seconds: float = 0.5,
        progress: bool | Callable[[JobRead], object] = False,
    ) -> JobRead:
        """The job, once it has ended; as `Client.wait`."""
        waiting = JobWait(timeout_seconds=timeout_seconds, progress=progress)
        while waiting.goes_on(job := await self.job(job_id)):
            await asyncio.sleep(poll_seconds)
        return job

    def events(
        self, job_id: str | None = None, *, after: int | None = None, give_up_seconds: float = 60.0
    ) -> AsyncIterator[EventRead]:
        """Events as they come; as `Client.events`."""
        path = declared.events_path(job_id)
        return followed_later(
            lambda last: self._stream(EventRead, path, last), after=after, give_up_seconds=give_up_seconds
        )

    def follow_logs(
        self, job_id: str, number: int, *, give_up_seconds: float = 60.0, **asked: str | int
    ) -> AsyncIterator[OutputRead]:
        """The output of the ranks of a trial, as it comes; as `Client.follow_logs`."""
        path = declared.logs_path(job_id, number)
        return followed_later(
            lambda last: self._stream(OutputRead, path, last, params=asked),
            after=None,
            give_up_seconds=give_up_seconds,
        )

    async def export(
        self,
        job_id: str,
        *,
        table: Literal["trials", "measurements"],
        table_format: Literal["csv", "jsonl", "parquet"] = "csv",
    ) -> AsyncIterator[bytes]:
        """The file of a job's trials or measurements, in pieces; as `Client.export`."""
        params = {"table": table, "format": table_format}
        timeout, path = httpx.Timeout(TIMEOUT_SECONDS, read=STREAM_TIMEOUT_SECONDS), declared.export_path(job_id)
        try:
            async with self._http.stream("GET", path, params=params, timeout=timeout) as response:
                if not response.is_success:
                    await response.aread()
                    raise refusal(response, self.base_url)
                async for piece in response.aiter_bytes():
                    yield piece
        except httpx.TransportError as error:
            raise ServiceUnreachable(self.base_url, error) from error
