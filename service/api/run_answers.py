"""The wait for the answers of jobs' runs: one reader in each process asks the database for all requests that wait."""

from __future__ import annotations

import asyncio
import logging

from starlette.concurrency import run_in_threadpool

from service.api.capacity import Turns
from service.errors import ServiceBusy
from service.specification.external.messages import RunAnswer
from service.store.repositories import ExternalRequestRepository
from service.store.session import DATABASE_ERRORS, Database

POLL_SECONDS = 0.1
"""Time between two looks for answers, as often as a run looks for requests; one statement for all that wait."""
MAX_WAITING = 500
"""Requests that wait in one process, by judgement; further ones are told that the service is busy."""

logger = logging.getLogger(__name__)


class Answers:
    """Waits for runs, without a thread or a connection for each who waits. Lives in one event loop."""

    def __init__(self, database: Database, turns: Turns) -> None:
        self._database = database
        self._turns = turns
        self._waiting: dict[int, set[asyncio.Future[RunAnswer]]] = {}
        self._num_waiting = 0
        self._reader: asyncio.Task[None] | None = None

    async def wait(self, request_id: int, *, seconds: float) -> RunAnswer | None:
        """The answer to a request; None: there was none in time.

        Raises:
            ServiceBusy: too many wait already.
        """
        if self._num_waiting >= MAX_WAITING:
            raise ServiceBusy(MAX_WAITING, 0.0, what="requests that wait for the runs of jobs")
        future: asyncio.Future[RunAnswer] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(request_id, set()).add(future)
        self._num_waiting += 1
        if self._reader is None or self._reader.done():
            self._reader = asyncio.create_task(self._read(), name="read answers")
        try:
            done, _ = await asyncio.wait({future}, timeout=seconds)
            return future.result() if done else None
        finally:
            self._num_waiting -= 1
            others = self._waiting[request_id]
            others.discard(future)
            if not others:
                del self._waiting[request_id]

    async def _read(self) -> None:
        while self._waiting:
            try:
                async with self._turns.one():
                    found = await run_in_threadpool(self._look, list(self._waiting))
            except (ServiceBusy, *DATABASE_ERRORS) as error:
                logger.warning("cannot look for answers: %s", error)
                found = {}
            for request_id, answer in found.items():
                for future in self._waiting.get(request_id, ()):
                    if not future.done():
                        future.set_result(answer)
            await asyncio.sleep(POLL_SECONDS)

    def _look(self, request_ids: list[int]) -> dict[int, RunAnswer]:
        with self._database.reading() as session:
            return ExternalRequestRepository(session).answers(request_ids)
