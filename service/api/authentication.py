"""Recognises callers by token or session, with a short memory: most requests cost the database nothing."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeVar
from weakref import WeakValueDictionary

from starlette.concurrency import run_in_threadpool

from service.access import sessions
from service.access.caller import ANYBODY, Caller
from service.access.rate_limits import RateLimit
from service.access.tokens import KnownToken, TokenText, look_up
from service.api.capacity import Turns
from service.errors import ServiceBusy
from service.settings import Access, Settings
from service.store.repositories import JobRepository, SigningKeyRepository, TokenRepository
from service.store.session import DATABASE_ERRORS, Database, Session

FRESH = timedelta(seconds=2)
"""The time for which the database's answer about a token is remembered: a revoked one is let in no longer."""
USE_NOTED = timedelta(minutes=10)
"""The use of a token is written no more often."""
MAX_REMEMBERED = 10_000
"""Tokens, and jobs, of which it is remembered what the database said."""

Found = TypeVar("Found")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Seen:
    token: KnownToken
    at: datetime


class Authentication:
    """Says who asks, and whether a job is in its project. Lives in one event loop."""

    def __init__(self, database: Database, turns: Turns, settings: Settings) -> None:
        self._database = database
        self._turns = turns
        self._access = settings.access
        self._is_local = settings.only_this_machine_can_ask
        self._limit = RateLimit(settings.requests_per_second, time.monotonic)
        self._tokens: OrderedDict[str, _Seen] = OrderedDict()
        self._projects: OrderedDict[str, str] = OrderedDict()
        """Of jobs, by id: a job stays in its project."""
        self._key: str | None = None
        self._without_tokens: datetime | None = None
        """The time at which there was last found to be no token; None: not yet, or there is one."""
        self._has_tokens = False
        self._looking = asyncio.Lock()
        self._looking_for: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By prefix of the token: of many who ask at once with the same, as streams do, one looks."""
        self._noting: set[asyncio.Task[None]] = set()

    async def anybody(self, now: datetime) -> Caller | None:
        """Whoever asks where no tokens are asked for; None: they are."""
        if self._access is Access.OPEN:
            return ANYBODY
        if self._access is Access.TOKENS or not self._is_local or self._has_tokens:
            return None
        seen = self._without_tokens  # once: who makes a token takes it away, in a thread of his own
        if seen is not None and _is_fresh(seen, now):
            return ANYBODY
        async with self._looking:
            seen = self._without_tokens
            if seen is None or not _is_fresh(seen, now):
                try:
                    self._has_tokens = await self._read(lambda session: TokenRepository(session).exists())
                except DATABASE_ERRORS:
                    if seen is None:
                        raise
                    return ANYBODY  # as it was: without the database there is nothing to see or change, but `/metrics`
                self._without_tokens = now
        return None if self._has_tokens else ANYBODY

    async def by_token(self, text: TokenText, now: datetime, *, address: str | None = None) -> Caller | None:
        """The caller whose token this is; None: there is no such token, or it has ended.

        Args:
            address: from which it came; where too many have failed from there, only a token that was seen before is
                looked up: what anybody can make up must not cost the database more than the rate. None: looked up.
        """
        if address is not None and text.prefix not in self._tokens and self._limit.is_spent(f"address {address}"):
            return None
        token = await self._token(text.prefix, now)
        if token is None or not token.is_of(text):
            return None
        self._note_use(token, now)
        return token.caller

    async def by_session(self, cookie: str, now: datetime) -> Caller | None:
        """The caller that has logged in; None: the session is over, or its token has ended."""
        if self._key is None:
            self._key = await self._read(lambda session: SigningKeyRepository(session).find(sessions.SIGNING_KEY))
        session = None if self._key is None else sessions.session_of(cookie, key=self._key, now=now)
        token = None if session is None else await self._token(session.prefix, now)
        if session is None or token is None or not token.holds(session.begun_at):
            return None
        self._note_use(token, now)
        return replace(token.caller, logged_in_at=session.begun_at)

    async def finish(self) -> None:
        """Waits until all uses of tokens are noted: whoever closes the database then leaves no connection."""
        if self._noting:
            await asyncio.wait(self._noting)

    def look_again(self) -> None:
        """Makes the next request without a token ask the database again whether there is one."""
        self._without_tokens = None

    def forget(self, prefix: str) -> None:
        """Makes the next request with a changed token ask the database again."""
        self._tokens.pop(prefix, None)

    async def holds(self, caller: Caller, now: datetime) -> bool:
        """True if the caller would be let in again: for what goes on after the request was checked."""
        if caller.token is None:
            return await self.anybody(now) is not None
        token = await self._token(caller.token, now)
        began = caller.logged_in_at
        if token is None or (began is not None and (sessions.is_over(began, now) or not token.holds(began))):
            return False
        return token.caller == replace(caller, logged_in_at=None)

    async def sees(self, caller: Caller, job_id: str) -> bool:
        """True if there is such a job for the caller."""
        if caller.sees is None:
            return True  # whoever looks for it finds out
        project = self._projects.get(job_id)
        if project is None:
            project = await self._read(lambda session: JobRepository(session).project_of(job_id))
            if project is None:
                return False
            self._projects[job_id] = project
            if len(self._projects) > MAX_REMEMBERED:
                self._projects.popitem(last=False)
        return project == caller.sees

    def wait_seconds(self, caller: Caller | None, address: str) -> float:
        """Seconds until whoever asks may ask, 0: at once. Nobody is limited where only this machine can ask.

        Args:
            caller: None: it is not known.
        """
        if self._is_local and caller is ANYBODY:
            return 0.0
        return self._limit.take(f"address {address}" if caller is None or caller.token is None else caller.token)

    async def _token(self, prefix: str, now: datetime) -> KnownToken | None:
        seen = self._tokens.get(prefix)
        if seen is None or not _is_fresh(seen.at, now):
            async with self._looking_for.setdefault(prefix, asyncio.Lock()):
                seen = self._tokens.get(prefix)
                if seen is None or not _is_fresh(seen.at, now):
                    found = await self._read(lambda session: look_up(session, prefix))
                    self._tokens.pop(prefix, None)
                    if found is None:
                        return None
                    seen = self._tokens[prefix] = _Seen(found, now)
                    if len(self._tokens) > MAX_REMEMBERED:
                        self._tokens.popitem(last=False)
        return None if seen.token.has_ended(now) else seen.token

    def _note_use(self, token: KnownToken, now: datetime) -> None:
        """Writes beside the request that a token was used: whoever reads need not wait for a writer."""
        if token.last_used_at is not None and now - token.last_used_at < USE_NOTED:
            return
        self._tokens[token.prefix] = _Seen(token.used(now), now)
        task = asyncio.create_task(self._write_use(token.prefix, now), name="note the use of a token")
        self._noting.add(task)
        task.add_done_callback(self._noting.discard)

    async def _write_use(self, prefix: str, now: datetime) -> None:
        def write() -> None:
            with self._database.writing() as session:
                TokenRepository(session).note_use(prefix, now)

        try:
            async with self._turns.one():
                await run_in_threadpool(write)
        except (ServiceBusy, *DATABASE_ERRORS) as error:
            logger.warning("cannot note the use of token %s: %s", prefix, error)

    async def _read(self, look: Callable[[Session], Found]) -> Found:
        def read() -> Found:
            with self._database.reading() as session:
                return look(session)

        async with self._turns.one():
            return await run_in_threadpool(read)


def _is_fresh(seen: datetime, now: datetime) -> bool:
    return timedelta(0) <= now - seen < FRESH
