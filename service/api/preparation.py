"""The part of a request that starts processes, done before it has its turn at the database: whoever waits for a
process keeps nobody from anything else.

A process describes a workload of somebody's own, makes a sampler, predicts memory, tells a fingerprint. Few run at
once, a few more requests wait, and further ones are told that the service is busy. What is asked for twice at the same
time is found out once. What takes longer than a client waits goes on without it, and who asks again has the result.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import json
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, cast

from anyio import CapacityLimiter, to_thread
from fastapi import BackgroundTasks, Depends, Query, Request
from fastapi.concurrency import run_in_threadpool

from service.access.caller import Caller
from service.access.permitted import check_paths, refuse_user_code
from service.api.dependencies import (
    CallerDependency,
    DataAreHere,
    DatabaseDependency,
    JobId,
    SettingsDependency,
    TurnsDependency,
)
from service.api.schemas.jobs import JobCreate
from service.code.unpacked import laid_out
from service.errors import NotDoneYet, NotFound, ServiceBusy
from service.settings import Settings
from service.specification.estimate import MemoryEstimate
from service.specification.external.trials import EXTERNAL
from service.specification.identity import ModelOfJob
from service.specification.job import JobSpecification, SamplerReference
from service.specification.planning import JobPlan, plan_job, workload_of
from service.specification.price import Price, price_of
from service.specification.search.own_sampler import check_sampler
from service.store.repositories import CodeRepository, JobRepository
from service.use_cases.budgets import check_cost
from service.use_cases.estimating.memory_estimates import check_workload, predict_job
from service.use_cases.estimating.model_fingerprint import field_with_winners, model_for_winners
from service.use_cases.estimating.refused_values import is_known_to_build
from service.use_cases.keeping.code import unknown_code
from trainers.identity.values import ModelShape
from trainers.processes.starting import warm_up
from trainers.workload.description import WorkloadDescription
from trainers.workloads.registry import BUILT_IN

AT_ONCE = 4
"""Requests whose processes run at the same time."""
WAITING = 8
"""Further ones that wait for these."""
WAIT_SECONDS = 20.0
"""Work that has had no turn for so long is given up: the service is busy."""
ANSWER_SECONDS = 25.0  # clients commonly give up after 30
"""A request is answered after so long: whoever asks again is given what the work, which goes on, finds out."""
KEPT_SECONDS = 120.0
"""Time that what was found out after the first answer is kept for whoever asks again."""

WHAT = "requests that need a process of their own"

T = TypeVar("T")


class Preparations:
    """Bounds the work that starts processes, and does at once what several ask for at once."""

    def __init__(self, *, at_once: int = AT_ONCE, waiting: int = WAITING) -> None:
        self._at_once = at_once
        self._waiting = waiting
        self._free = asyncio.Semaphore(at_once)
        self._threads = CapacityLimiter(at_once)
        self._running: dict[str, asyncio.Task[Any]] = {}
        self._of_token: Counter[str] = Counter()
        """Of those that run or wait."""
        self._late: dict[str, asyncio.Task[Any]] = {}
        """Work that took longer than a request may; first all of it, then what has ended and nobody has asked for."""

    @property
    def num_running(self) -> int:
        """Calls whose work goes on or waits, equal ones counted once."""
        return len(self._running)

    async def do(self, what: str, work: Callable[[], T], *, token: str | None = None) -> T:
        """The result of `work`, which a thread does; or that of a call with an equal `what`, if one is under way.

        Args:
            token: its prefix, of whoever asks. All that run or wait for one token leave others a process.

        Raises:
            ServiceBusy: there are too many already, or too many of this token, or there was no turn in time.
            NotDoneYet: it takes longer than clients wait.
        """
        task = self._running.get(what) or self._late.pop(what, None)
        if task is None:
            if len(self._running) >= self._at_once + self._waiting:
                raise ServiceBusy(self._at_once, 0.0, what=WHAT)
            if token is not None and self._of_token[token] >= self._at_once - 1:
                raise ServiceBusy(self._at_once - 1, 0.0, what=f"{WHAT}, of one token,")
            task = asyncio.create_task(self._do(work), name="preparation")
            self._running[what] = task
            if token is not None:
                self._of_token[token] += 1
                task.add_done_callback(lambda _: self._leave(token))
            task.add_done_callback(lambda done: self._end(what, done))
        # Of its own: whoever leaves does not end it for the others.
        done, _ = await asyncio.wait({task}, timeout=ANSWER_SECONDS)
        if not done:
            self._late[what] = task
            raise NotDoneYet(ANSWER_SECONDS)
        self._late.pop(what, None)
        return cast("T", task.result())

    async def _do(self, work: Callable[[], T]) -> T:
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._free.acquire()
        except TimeoutError as error:
            raise ServiceBusy(self._at_once, WAIT_SECONDS, what=WHAT) from error
        try:
            # The end of the service waits for no thread: it ends the process that the thread waits for.
            return await to_thread.run_sync(work, limiter=self._threads, abandon_on_cancel=True)
        finally:
            self._free.release()

    def _leave(self, token: str) -> None:
        self._of_token[token] -= 1
        if not self._of_token[token]:
            del self._of_token[token]

    def _end(self, what: str, task: asyncio.Task[Any]) -> None:
        del self._running[what]
        if not task.cancelled():
            task.exception()  # whoever asked may have left: asyncio would log it
        if self._late.get(what) is task:
            asyncio.get_running_loop().call_later(KEPT_SECONDS, self._forget, what, task)

    def _forget(self, what: str, task: asyncio.Task[Any]) -> None:
        if self._late.get(what) is task:
            del self._late[what]


async def _preparations(request: Request) -> Preparations:
    return cast("Preparations", request.app.state.preparations)


PreparationsDependency = Annotated[Preparations, Depends(_preparations)]


async def job_expected(background: BackgroundTasks) -> None:
    """Starts the process that answers dry runs, with the response: a client that asks what jobs are made of is about to
    ask for one."""
    background.add_task(warm_up)


class CodeReader:
    """Reads the code that comes with a job."""

    def __init__(self, database: DatabaseDependency, turns: TurnsDependency) -> None:
        self._database, self._turns = database, turns

    async def archive(self, specification: JobSpecification, *, project: str) -> bytes | None:
        """The archive of a job's code; None: the job brings none.

        Raises:
            InvalidInput: the project does not have it.
        """
        if specification.code is None:
            return None
        sha256 = specification.code.sha256

        def read() -> bytes:
            with self._database.reading() as session:
                return CodeRepository(session).archive(project, sha256)

        try:
            async with self._turns.one():
                return await run_in_threadpool(read)
        except NotFound:
            raise unknown_code(sha256) from None


CodeReaderDependency = Annotated[CodeReader, Depends(CodeReader)]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A submission, checked, with all that only processes can tell of it."""

    body: JobCreate
    plan: JobPlan
    model: ModelOfJob | None
    """The model that it trains, for the configs of earlier ones that the job asks for; None: it asks for none."""
    memory: MemoryEstimate | None
    """The memory that a trial needs, all of it told by a dry run; None: nothing was built to tell it."""
    price: Price | None
    """The price of a device-hour; None: nobody knows."""
    shape: ModelShape | None = None
    """The shape of the model that it trains, as a dry run tells it; None: it was not asked for, or cannot be told."""


DryRun = Annotated[bool, Query(description="Check the job and say what it would cost at most; nothing is stored.")]


async def _prepared(
    body: JobCreate,
    settings: SettingsDependency,
    caller: CallerDependency,
    data_are_here: DataAreHere,
    preparations: PreparationsDependency,
    code_reader: CodeReaderDependency,
    dry_run: DryRun = False,
) -> Prepared:
    return await prepare(
        body, settings, caller, preparations, code_reader, data_are_here=data_are_here, dry_run=dry_run
    )


async def prepare(
    body: JobCreate,
    settings: Settings,
    caller: Caller,
    preparations: Preparations,
    code_reader: CodeReader,
    *,
    data_are_here: bool,
    dry_run: bool,
) -> Prepared:
    """A submission, checked.

    Raises:
        InvalidInput: names the field.
        ServiceBusy: too many others are being prepared.
    """
    refuse_user_code(body.workload, body.sampler, settings, caller=caller)
    price = price_of(body.specification.resources, settings.device_hour_prices, currency=settings.currency)
    check_cost(body.specification.budget, price)
    archive = await code_reader.archive(body.specification, project=caller.project)
    work = functools.partial(_prepare, body, settings, price, archive, data_are_here=data_are_here, dry_run=dry_run)
    if not starts_processes(body.specification, dry_run=dry_run, data_are_here=data_are_here):
        return await run_in_threadpool(work)
    what = json.dumps([body.specification.model_dump(mode="json"), dry_run], sort_keys=True)
    found = await preparations.do(what, work, token=caller.token)
    # The name and the tags are each request's own.
    return Prepared(body, found.plan, found.model, found.memory, price, found.shape)


def starts_processes(specification: JobSpecification, *, dry_run: bool, data_are_here: bool) -> bool:
    """True if it takes processes to prepare a submission."""
    return (
        dry_run
        or specification.workload.name not in (*BUILT_IN, EXTERNAL)
        or isinstance(specification.sampler.name, SamplerReference)
        or field_with_winners(specification) is not None
        or specification.pruner.name == "pbt"
        or (data_are_here and specification.external is None and not is_known_to_build(specification))
    )


def _prepare(
    body: JobCreate,
    settings: Settings,
    price: Price | None,
    archive: bytes | None,
    *,
    data_are_here: bool,
    dry_run: bool,
) -> Prepared:
    code = body.code
    with laid_out(archive, code, packages=settings.package_place, max_bytes=settings.package_bytes):
        return _find_out(body, settings, price, data_are_here=data_are_here, dry_run=dry_run)


def _find_out(
    body: JobCreate, settings: Settings, price: Price | None, *, data_are_here: bool, dry_run: bool
) -> Prepared:
    check_sampler(body.sampler)
    plan = plan_job(body.specification)
    if plan.specification.external is not None:
        # Neither the model nor its data are here: it may not be asked about.
        return Prepared(body, plan, model_for_winners(plan), None, price)
    data_roots = settings.data_directories
    check_paths(plan, data_roots, data_are_here=data_are_here)
    is_local = settings.cluster_address is None
    if not dry_run:
        found = check_workload(plan, is_local=is_local, data_roots=data_roots) if data_are_here else None
        return Prepared(body, plan, model_for_winners(plan, data_roots=data_roots), found, price)
    # Both ask processes, and one after the other takes longer than clients wait.
    with ThreadPoolExecutor(1) as pool:
        here = contextvars.copy_context()  # with the code of the job
        model = pool.submit(here.run, functools.partial(model_for_winners, plan, data_roots=data_roots))
        told = predict_job(plan, is_local=is_local, data_are_here=data_are_here, data_roots=data_roots)
    return Prepared(body, plan, model.result(), told.memory, price, told.shape)


PreparedJob = Annotated[Prepared, Depends(_prepared)]


@dataclass(frozen=True, slots=True)
class _Stored:
    """A stored job that is to run again."""

    specification: JobSpecification
    project: str


async def permitted_job(
    job_id: JobId,
    settings: SettingsDependency,
    caller: CallerDependency,
    database: DatabaseDependency,
    turns: TurnsDependency,
) -> _Stored:
    """A stored job as a new one, for who has it run again: code that it names must be allowed now, and to the caller.

    Raises:
        InvalidInput: the service allows no code any more.
        CodeForbidden: the caller's token does not.
    """

    def read() -> _Stored:
        with database.reading() as session:
            job = JobRepository(session).get(job_id)
            return _Stored(job.specification, job.project)

    async with turns.one():
        stored = await run_in_threadpool(read)
    refuse_user_code(stored.specification.workload, stored.specification.sampler, settings, caller=caller)
    return stored


async def _described_workload(
    stored: Annotated[_Stored, Depends(permitted_job)],
    caller: CallerDependency,
    preparations: PreparationsDependency,
    code_reader: CodeReaderDependency,
    settings: SettingsDependency,
) -> WorkloadDescription:
    specification = stored.specification
    name, code = specification.workload.name, specification.code
    if name in BUILT_IN:
        return BUILT_IN[name]
    if name == EXTERNAL:
        return workload_of(specification)  # the job says it all
    archive = await code_reader.archive(specification, project=stored.project)

    def describe() -> WorkloadDescription:
        with laid_out(archive, code, packages=settings.package_place, max_bytes=settings.package_bytes):
            return workload_of(specification)

    what = json.dumps([name, None if code is None else code.model_dump()], sort_keys=True)
    return await preparations.do(what, describe, token=caller.token)


JobWorkload = Annotated[WorkloadDescription, Depends(_described_workload)]
"""The description of a stored job's workload, found before the request's transaction begins."""
