"""Trials that others train, for a loop on `asyncio`: as in `service.client.training.client`, with answers awaited.

async with AsyncClient() as client:
    async for trial in external_trials(client, job):
        async with trial:
            ...
            await trial.report(step, {"validation_loss": loss})
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Self, SupportsIndex

from service.api.schemas.external import DecisionRead
from service.client.async_client import AsyncClient
from service.client.calls import Call
from service.client.errors import ApiError, ServiceUnreachable
from service.client.training.suggested import GIVE_UP_SECONDS, PAUSE_SECONDS, Patience, Suggested, suggestion
from service.specification.external.messages import SuggestedTrial


class AsyncExternalTrial(Suggested):
    """A trial that this process has to train. Methods, arguments and errors: those of `ExternalTrial`."""

    def __init__(self, client: AsyncClient, job_id: str, suggested: SuggestedTrial, *, give_up_seconds: float) -> None:
        super().__init__(job_id, suggested)
        self._client = client
        self._give_up_seconds = give_up_seconds

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Ends a trial that has not ended: an error fails it, and else it is released, as of a cancelled task."""
        if self._is_left:
            return
        if isinstance(error, Exception) and not self._has_ended:
            await self.fail("error", f"{type(error).__name__}: {error}")
        else:
            await self.release(None if error is None else type(error).__name__)

    async def report(
        self, step: SupportsIndex, metrics: Mapping[str, float], *, epoch: float = 0.0, seconds: float | None = None
    ) -> bool:
        """Reports what was measured after a step; True if the trial goes on."""
        report = self._measured(step, metrics, epoch=epoch, seconds=seconds)
        if self._is_last(step):
            return self._take(await self._decided(report), is_end=True)
        return self._take(await self._tell(report))

    async def keep(self) -> bool:
        """Says that this process is still there; True if the trial goes on."""
        return self._take(await self._tell(self._kept()))

    async def should_stop(self) -> bool:
        """True if the trial does not go on; asks the service, and tells it nothing."""
        return not self._hear(await self._client.call(self._asked()))

    async def complete(self) -> None:
        """Says that it was trained to its last step, whose measurement was reported."""
        self._take(await self._tell(self._ended("completed")), is_end=True)

    async def fail(self, reason: str, detail: str | None = None) -> None:
        """Ends a trial that failed."""
        self._take(await self._tell(self._ended("failed", reason=reason, detail=detail)), is_end=True)

    async def release(self, detail: str | None = None) -> None:
        """Gives the trial back: another client may go on with it."""
        self._take(await self._tell(self._ended("released", detail=detail)), is_end=True)

    async def _decided(self, report: Call[DecisionRead]) -> DecisionRead:
        """The decision on a report, which is sent again while it is stored only; not decided after so long, it stays
        stored, and the job's run takes it in some time."""
        deadline = time.monotonic() + self._give_up_seconds
        while True:
            answer = await self._tell(report)
            if answer.status == "answered" or time.monotonic() > deadline:
                return answer
            await asyncio.sleep(PAUSE_SECONDS)

    async def _tell(self, call: Call[DecisionRead]) -> DecisionRead:
        patience = Patience(self._give_up_seconds)
        while True:
            try:
                return await self._client.call(call)
            except (ServiceUnreachable, ApiError) as error:
                patience.bear(error)
                await asyncio.sleep(PAUSE_SECONDS)


async def suggest(
    client: AsyncClient, job_id: str, *, name: str | None = None, give_up_seconds: float = GIVE_UP_SECONDS
) -> AsyncExternalTrial | None:
    """The trial that the job's search wants tried next; as `service.client.training.client.suggest`."""
    question, patience = suggestion(job_id, name), Patience(give_up_seconds)
    while True:
        try:
            answer = await client.call(question)
        except (ServiceUnreachable, ApiError) as error:
            patience.bear(error)
        else:
            patience.begin_anew()
            if answer.status == "done":
                return None
            if answer.trial is not None:
                return AsyncExternalTrial(client, job_id, answer.trial, give_up_seconds=give_up_seconds)
        await asyncio.sleep(PAUSE_SECONDS)


async def external_trials(
    client: AsyncClient, job_id: str, *, name: str | None = None, give_up_seconds: float = GIVE_UP_SECONDS
) -> AsyncIterator[AsyncExternalTrial]:
    """Trials to train, one after the other, until there are none any more; as `suggest`."""
    while (trial := await suggest(client, job_id, name=name, give_up_seconds=give_up_seconds)) is not None:
        yield trial
