"""Dependencies of endpoints: settings, the clock, and a session that is committed before the response is sent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Annotated, cast

from anyio import CancelScope, CapacityLimiter, to_thread
from fastapi import Depends, Header, HTTPException, Path, Request
from fastapi.concurrency import contextmanager_in_threadpool
from fastapi.dependencies.models import Dependant

from search_spaces.nearest import did_you_mean
from service.access.audit import record_deed
from service.access.caller import Caller
from service.api.authentication import Authentication
from service.api.capacity import Probe, Turns
from service.api.paging import LARGEST_INT
from service.clock import Clock
from service.errors import InvalidInput, JobNotFound, UnknownParameter
from service.faults import Faults
from service.hosts import address_of_peer, holder_of
from service.monitoring.metrics import Metrics
from service.monitoring.readiness import why_no_room
from service.settings import Settings
from service.store.session import Database, Session
from service.use_cases.progress import TrialMemory
from service.use_cases.waiting import Surroundings, WorkerFault


# Coroutines, although they wait for nothing: a function would need a thread for each.
async def _settings(request: Request) -> Settings:
    return cast("Settings", request.app.state.settings)


async def _data_are_here(request: Request) -> bool:
    return cast("bool", request.app.state.data_are_here)


async def _database(request: Request) -> Database:
    return cast("Database", request.app.state.database)


async def _turns(request: Request) -> Turns:
    return cast("Turns", request.app.state.turns)


async def _probe(request: Request) -> Probe:
    return cast("Probe", request.app.state.probe)


async def _metrics(request: Request) -> Metrics:
    return cast("Metrics", request.app.state.metrics)


async def _trial_memory(request: Request) -> TrialMemory:
    return cast("TrialMemory", request.app.state.trial_memory)


async def _now(request: Request) -> datetime:
    return cast("Clock", request.app.state.clock)()


async def _surroundings(request: Request) -> Surroundings:
    room = partial(why_no_room, await _settings(request), data_are_here=await _data_are_here(request))
    fault = cast("Callable[[], WorkerFault | None] | None", request.app.state.why_no_worker)
    if fault is None:
        return Surroundings(room)
    sees_all = (await _caller(request)).sees is None

    def why_no_worker() -> str | None:
        found = fault()
        return None if found is None else found.told(with_log=sees_all)

    return Surroundings(room, why_no_worker=why_no_worker)


SettingsDependency = Annotated[Settings, Depends(_settings)]
DataAreHere = Annotated[bool, Depends(_data_are_here)]
"""True if trials train on this machine, so that the data which jobs name can be looked at."""
Around = Annotated[Surroundings, Depends(_surroundings)]
"""Looks at the disks when it is called: what keeps workers from beginning jobs."""
DatabaseDependency = Annotated[Database, Depends(_database)]
TurnsDependency = Annotated[Turns, Depends(_turns)]
ProbeDependency = Annotated[Probe, Depends(_probe)]
MetricsDependency = Annotated[Metrics, Depends(_metrics)]
TrialMemoryDependency = Annotated[TrialMemory, Depends(_trial_memory)]
Now = Annotated[datetime, Depends(_now)]
"""The time of the request, aware UTC."""


async def _authentication(request: Request) -> Authentication:
    return cast("Authentication", request.app.state.authentication)


async def _caller(request: Request) -> Caller:
    return cast("Caller", request.state.caller)


AuthenticationDependency = Annotated[Authentication, Depends(_authentication)]
CallerDependency = Annotated[Caller, Depends(_caller)]
"""The caller, as the guard found out."""


def address_of(request: Request) -> str | None:
    """The address from which a request came; behind a proxy that is trusted, the one that it names. None: it is none,
    as what somebody makes up for `X-Forwarded-For`."""
    return None if request.client is None else address_of_peer(request.client.host)


def holder_of_address(request: Request) -> str | None:
    """The holder that a request is counted for, where each address has a share; None: it has no address."""
    address = address_of(request)
    return None if address is None else holder_of(address)


@dataclass(slots=True)
class Deed:
    """The action of a request that writes, for the audit trail; an endpoint that creates something names it."""

    target: str | None
    """E.g. a job's id; None: nothing is done."""


async def _deed(request: Request) -> Deed:
    found = [str(request.path_params[name]) for name in ("job_id", "number") if name in request.path_params]
    return Deed("/".join(found) or request.url.path)


DeedDependency = Annotated[Deed, Depends(_deed)]


# Of the application's state, not by further dependencies: nearly every request asks for it, and to resolve one costs as
# much as a tenth of a look at the database.
async def _read_session(request: Request) -> AsyncIterator[Session]:
    state = request.app.state
    turns, database = cast("Turns", state.turns), cast("Database", state.database)
    async with turns.one():
        session = database.session_to_read()
        try:
            yield session
        finally:
            if session.in_transaction():  # the endpoint has not closed it itself (`service.api.one_thread`)
                with CancelScope(shield=True):
                    # A limiter of its own: it waits for no thread that a request without a session may hold.
                    await to_thread.run_sync(session.close, limiter=CapacityLimiter(1))


async def _write_session(
    request: Request,
    database: DatabaseDependency,
    turns: TurnsDependency,
    caller: CallerDependency,
    deed: DeedDependency,
    now: Now,
) -> AsyncIterator[Session]:
    @contextmanager
    def writing() -> Iterator[Session]:
        with database.writing() as session:
            yield session
            if deed.target is not None:
                action = request.scope["route"].name
                record_deed(session, caller, action, deed.target, address=address_of(request), now=now)

    async with turns.one(), contextmanager_in_threadpool(writing()) as session:
        yield session


# Scope "function" ends the dependency when the endpoint returns, before the response goes out: with the default scope
# a failed commit would still answer 201.
ReadSession = Annotated[Session, Depends(_read_session, scope="function")]
"""Sees one state of the database."""
WriteSession = Annotated[Session, Depends(_write_session, scope="function")]
"""Its changes are committed before the response, or rolled back if the endpoint raises; and with them, that they were
made is noted in the audit trail."""


async def check_address(request: Request) -> None:
    """Refuses what no address may name, for every route: the one character that an address can hold and PostgreSQL's
    text cannot, and a job of another project than the caller's, as if there were no such job.

    The character is 404 in a path, as nothing stored has such a name, and 422 in a query. Headers cannot hold it, and
    bodies are checked by `check_storable`.

    Raises:
        NotFound: there is no such job for the caller.
    """
    if "\0" in request.scope["path"]:
        raise HTTPException(HTTPStatus.NOT_FOUND)
    if request.scope["query_string"]:
        for name, value in request.query_params.multi_items():
            if "\0" in name + value:
                raise InvalidInput(name, "must not contain the NUL character")
    job_id = request.path_params.get("job_id")
    authentication = cast("Authentication", request.app.state.authentication)
    if job_id is not None and not await authentication.sees(request.state.caller, job_id):
        raise JobNotFound(job_id)


def _query_names(dependant: Dependant) -> Iterator[str]:
    """Names of the parameters of a route's query."""
    yield from (field.alias for field in dependant.query_params)
    for inner in dependant.dependencies:
        yield from _query_names(inner)


async def refuse_unknown_parameters(request: Request) -> None:
    """Refuses parameters of the query that the route does not have, as unknown fields of a body are: a filter that is
    misspelt would give more than was asked for.

    Raises:
        UnknownParameter: names them.
    """
    if not request.url.query:
        return
    known, faults = sorted(set(_query_names(request.scope["route"].dependant))), Faults()
    for name in dict.fromkeys(request.query_params.keys()):
        if name not in known:
            hint = did_you_mean(name, known) or f" (known: {', '.join(known) or 'none'})"
            faults.note(UnknownParameter(name[:80], f"there is no such parameter{hint}"))
    faults.tell()


JobId = Annotated[str, Path(description="The job's id.", examples=["job_01KAJ5M0T3XQ8Z7V6R5N4M3K2J"])]
TrialNumber = Annotated[int, Path(ge=0, le=LARGEST_INT, description="0, 1, 2, ... within the job.")]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        description="Any unique text: sent again with the same body, it gives the same answer and makes nothing "
        "twice, for 30 days.",
    ),
]
