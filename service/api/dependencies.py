"""What endpoints ask for: settings, the clock, and a database session that is committed before the response is sent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Annotated, TypeAlias, cast

from fastapi import Depends, Header, Path, Request
from fastapi.concurrency import contextmanager_in_threadpool
from pydantic import AfterValidator

from service.api.capacity import Probe, Turns
from service.errors import NotFound
from service.settings import Settings
from service.store.session import Database, Session

Clock: TypeAlias = Callable[[], datetime]


def utc_now() -> datetime:
    return datetime.now(UTC)


# Coroutines, although they wait for nothing: a function would need a thread for each.
async def _settings(request: Request) -> Settings:
    return cast("Settings", request.app.state.settings)


async def _database(request: Request) -> Database:
    return cast("Database", request.app.state.database)


async def _turns(request: Request) -> Turns:
    return cast("Turns", request.app.state.turns)


async def _probe(request: Request) -> Probe:
    return cast("Probe", request.app.state.probe)


async def _now(request: Request) -> datetime:
    return cast("Clock", request.app.state.clock)()


SettingsDependency = Annotated[Settings, Depends(_settings)]
DatabaseDependency = Annotated[Database, Depends(_database)]
TurnsDependency = Annotated[Turns, Depends(_turns)]
ProbeDependency = Annotated[Probe, Depends(_probe)]
Now = Annotated[datetime, Depends(_now)]
"""The time of the request, aware UTC."""


async def _read_session(database: DatabaseDependency, turns: TurnsDependency) -> AsyncIterator[Session]:
    async with turns.one(), contextmanager_in_threadpool(database.reading()) as session:
        yield session


async def _write_session(database: DatabaseDependency, turns: TurnsDependency) -> AsyncIterator[Session]:
    async with turns.one(), contextmanager_in_threadpool(database.writing()) as session:
        yield session


# Scope "function" ends the dependency when the endpoint returns, before the response goes out: with the default scope
# a failed commit would still answer 201.
ReadSession = Annotated[Session, Depends(_read_session, scope="function")]
"""Sees one state of the database."""
WriteSession = Annotated[Session, Depends(_write_session, scope="function")]
"""Its changes are committed before the response, or rolled back if the endpoint raises."""


def _check_text(value: str) -> str:
    if "\0" in value:
        raise ValueError("must not contain the NUL character")
    return value


def _check_id(value: str) -> str:
    if "\0" in value:
        raise NotFound("job", value)
    return value


# PostgreSQL refuses to compare text with a NUL: such text is refused before it gets there.
StorableText = Annotated[str, AfterValidator(_check_text)]
JobId = Annotated[str, Path(examples=["job_01KAJ5M0T3XQ8Z7V6R5N4M3K2J"]), AfterValidator(_check_id)]
IdempotencyKey = Annotated[
    StorableText | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        description="Any unique text: sent again with the same body, it gives the same answer and makes nothing twice.",
    ),
]
