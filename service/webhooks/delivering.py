"""The thread of a worker that sends messages to webhooks."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from service.clock import Clock, utc_now
from service.store.session import DATABASE_ERRORS, Database
from service.use_cases.webhooks import Message, fill_outbox, is_anything_to_do, note_answer, take_due
from service.webhooks.signing import signed_headers

if TYPE_CHECKING:
    from service.webhooks.sending import Answer

LOOK_SECONDS = 1.0
"""Between two looks for events and messages whose time has come."""

logger = logging.getLogger(__name__)


def keep_delivering(database: Database, *, allows_private: bool, gone: threading.Event, clock: Clock = utc_now) -> None:
    """Sends what webhooks are to be told until `gone` is set.

    Args:
        allows_private: whether webhooks may lead to addresses that are not public.
    """
    fails = False
    while not gone.is_set():
        try:
            num_sent = deliver(database, allows_private=allows_private, clock=clock)
            fails = False
        except DATABASE_ERRORS as error:
            if not fails:  # once, not at every look of a long outage
                logger.warning("cannot look after webhooks: %s", error)
            fails, num_sent = True, 0
        if not num_sent:
            gone.wait(LOOK_SECONDS)


def deliver(database: Database, *, allows_private: bool, clock: Clock = utc_now) -> int:
    """Makes messages of new events, and sends some whose time has come; how many."""
    with database.reading() as session:  # mostly there is nothing, and SQLite has one writer
        if not is_anything_to_do(session, now=clock()):
            return 0
    with database.writing() as session:
        fill_outbox(session, now=clock())
        messages = take_due(session, now=clock())
    if not messages:
        return 0
    answers = asyncio.run(_send_all(messages, allows_private=allows_private))
    for message, answer in zip(messages, answers, strict=True):
        with database.writing() as session:
            note_answer(
                session,
                message.id,
                status=answer.status,
                text=answer.text,
                seconds=answer.seconds,
                is_taken=answer.is_taken,
                now=clock(),
            )
    return len(messages)


async def _send_all(messages: Sequence[Message], *, allows_private: bool) -> list[Answer]:
    return await asyncio.gather(*(_send(message, allows_private=allows_private) for message in messages))


async def _send(message: Message, *, allows_private: bool) -> Answer:
    from service.webhooks.sending import send  # imports httpx, for which many workers have no use

    headers = signed_headers(message.secret, message_id=message.id, timestamp=int(time.time()), body=message.body)
    return await send(message.url, message.body, headers, allows_private=allows_private)
