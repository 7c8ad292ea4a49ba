"""The thread of a worker that sends messages to webhooks."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Collection, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from service.clock import Clock, utc_now
from service.store.session import DATABASE_ERRORS, Database
from service.use_cases.webhooks import WebhookMessage, fill_outbox, is_anything_to_do, note_answer, take_due
from service.webhooks.signing import signed_headers

if TYPE_CHECKING:
    from service.webhooks.sending import Reply

LOOK_SECONDS = 1.0
"""The most between two looks for events and messages whose time has come."""
SENT_AT_ONCE = 64
"""Messages, each to another webhook: so many servers have to hang until another webhook waits for one of them."""
ENDING_SECONDS = 2.0
"""Time that messages which are being sent when the worker ends have to be answered."""

logger = logging.getLogger(__name__)


def keep_delivering(database: Database, *, allows_private: bool, gone: threading.Event, clock: Clock = utc_now) -> None:
    """Sends what webhooks are to be told until `gone` is set; what is not answered soon after is sent again by others.

    Args:
        allows_private: whether webhooks may lead to addresses that are not public.
    """
    asyncio.run(_keep_delivering(database, allows_private, gone, clock))


async def _keep_delivering(database: Database, allows_private: bool, gone: threading.Event, clock: Clock) -> None:
    loop = asyncio.get_running_loop()
    fails = False
    loop.set_default_executor(ThreadPoolExecutor(SENT_AT_ONCE))  # for names that hang while they are looked up
    with ThreadPoolExecutor(2) as threads:
        sending = Sending(database, threads, allows_private=allows_private, clock=clock)
        pause = loop.run_in_executor(threads, gone.wait, LOOK_SECONDS)
        while not gone.is_set():
            try:
                await sending.look()
                fails = False
            except DATABASE_ERRORS as error:
                if not fails:  # once, not at every look of a long outage
                    logger.warning("cannot look after webhooks: %s", error)
                fails = True
            await sending.wait(pause)
            if pause.done():
                pause = loop.run_in_executor(threads, gone.wait, LOOK_SECONDS)
        try:
            await sending.end()
        except DATABASE_ERRORS as error:
            logger.warning("cannot note what webhooks answered: %s", error)


class Sending:
    """The messages that are being sent, to each webhook one. Lives in one event loop."""

    def __init__(self, database: Database, threads: Executor, *, allows_private: bool, clock: Clock = utc_now) -> None:
        """Prepares it; `threads` ask the database."""
        self._database = database
        self._threads = threads
        self._allows_private = allows_private
        self._clock = clock
        self._sent: dict[asyncio.Task[Reply], WebhookMessage] = {}

    @property
    def is_busy(self) -> bool:
        """True if a message has no answer yet, or its answer is not noted."""
        return bool(self._sent)

    async def look(self) -> int:
        """Notes the answers that have come, makes messages of new events, and begins to send those whose time has come
        to webhooks that are being sent none; how many.

        Raises:
            DBAPIError, PoolTimeout: the database fails; what it was not told is sent again.
        """
        answers = self._take_answers()
        busy = {message.webhook_id for message in self._sent.values()}
        messages = await asyncio.get_running_loop().run_in_executor(self._threads, self._look, answers, busy)
        for message in messages:
            self._sent[asyncio.create_task(_send(message, allows_private=self._allows_private))] = message
        return len(messages)

    async def wait(self, *others: asyncio.Future[bool]) -> None:
        """Waits until one of the messages is answered, or one of the others is done."""
        awaited: list[asyncio.Future[Any]] = [*self._sent, *others]
        await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)

    async def end(self) -> None:
        """Waits for answers, but not long, and notes them.

        Raises:
            DBAPIError, PoolTimeout: the database fails.
        """
        if self.is_busy:
            await asyncio.wait(self._sent, timeout=ENDING_SECONDS)
            await asyncio.get_running_loop().run_in_executor(self._threads, self._note, self._take_answers())

    def _take_answers(self) -> list[tuple[WebhookMessage, Reply]]:
        return [(self._sent.pop(task), task.result()) for task in list(self._sent) if task.done()]

    def _look(self, answers: Sequence[tuple[WebhookMessage, Reply]], busy: Collection[str]) -> list[WebhookMessage]:
        self._note(answers)
        with self._database.reading() as session:  # mostly there is nothing, and SQLite has one writer
            if not is_anything_to_do(session, busy=busy, now=self._clock()):
                return []
        with self._database.writing() as session:
            fill_outbox(session, now=self._clock())
            return take_due(session, busy=busy, limit=SENT_AT_ONCE - len(busy), now=self._clock())

    def _note(self, answers: Sequence[tuple[WebhookMessage, Reply]]) -> None:
        for message, answer in answers:
            with self._database.writing() as session:
                note_answer(
                    session,
                    message.id,
                    status=answer.status,
                    text=answer.text,
                    seconds=answer.seconds,
                    is_taken=answer.is_taken,
                    now=self._clock(),
                )


async def _send(message: WebhookMessage, *, allows_private: bool) -> Reply:
    from service.webhooks.sending import send  # imports httpx, for which many workers have no use

    headers = signed_headers(
        message.secret, message_id=message.id, timestamp=int(message.taken_at.timestamp()), body=message.body
    )
    return await send(message.url, message.body, headers, allows_private=allows_private)
