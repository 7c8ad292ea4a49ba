"""The HTTP application, put together: API, dashboard, middleware, errors, documentation."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fastapi import APIRouter, Depends, FastAPI
from fastapi.routing import APIRoute
from fastapi.security import APIKeyCookie, HTTPBearer
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import BaseRoute
from starlette.staticfiles import StaticFiles

from service.access.sessions import COOKIE
from service.api import problems
from service.api.authentication import Authentication
from service.api.capacity import Probe, Turns
from service.api.dependencies import check_address, refuse_unknown_parameters
from service.api.events import EventFeed
from service.api.preparation import Preparations
from service.api.routers import access, catalogue, code, events, health, metrics, recommendations, webhooks
from service.api.routers.of_jobs import export, insights, jobs, kept_jobs, plots, weights
from service.api.routers.of_trials import checkpoints, external, measurements, output, trial_plots, trials
from service.api.run_answers import Answers
from service.clock import Clock
from service.dashboard import documentation, error_pages, routes
from service.dashboard.assets import static_mounts
from service.errors import NotFound
from service.monitoring.answer_times import AnswerTimes
from service.monitoring.database_version import DatabaseVersion
from service.monitoring.metrics import Metrics
from service.monitoring.request_ids import RequestIds
from service.server.body_limit import BODY_SECONDS, LARGER_BODIES, BodyLimit, Limit
from service.server.guard import Guard
from service.server.head import Head
from service.server.openapi import Application
from service.server.origin_check import OriginCheck
from service.server.version_gate import VersionGate
from service.settings import Settings
from service.store.session import Database
from service.use_cases.progress import TrialMemory
from service.use_cases.waiting import WorkerFault
from trainers.installation.distribution import version

DESCRIPTION = """\
Finds the Shampoo configuration that fits a model. Submit a **job**; workers run its **trials**; follow its
**events**; read its **recommendation**. Errors are `application/problem+json` and name the field at fault.
"""
TAGS = [
    {"name": "jobs", "description": "Tuning jobs: submitted, steered, found in lists, cloned, archived and deleted."},
    {
        "name": "trials",
        "description": "The trials of a job, with their configs and curves; proposed, stopped, retried.",
    },
    {"name": "external trials", "description": "Trials that are trained elsewhere: asked for, and told of."},
    {"name": "code", "description": "Directories of code that come with jobs: kept by their contents, sent once."},
    {"name": "events", "description": "What happens, as it happens: streams of server-sent events."},
    {"name": "recommendations", "description": "Configs with the evidence for them: the answers of jobs."},
    {"name": "webhooks", "description": "Addresses that are told what happens to jobs, and what was sent to them."},
    {"name": "catalogue", "description": "What a job can be made of: workloads and search spaces."},
    {"name": "admin", "description": "For whoever looks after the service."},
    {"name": "health", "description": "Probes, which ask for no token."},
]
"""Tags of the operations; a test holds them against those that operations have."""
SERVERS = [{"url": "/", "description": "This service."}]
MAX_STREAMS = 500
"""Streams of events at once, of an API process: half of the connections that it accepts. Each reads every event from
SQL."""
MAX_STREAMS_PER_ADDRESS = 100
"""A page has one. Behind a proxy that does not say for whom it asks, all come from its address."""

_BEARER = HTTPBearer(
    auto_error=False,
    scheme_name="token",
    description="`shampoo_PREFIX_SECRET`, as `shampoo-tuner token create` made it.",
)
_COOKIE = APIKeyCookie(
    name=COOKIE,
    auto_error=False,
    scheme_name="session",
    description="The cookie of a browser that has logged in. Its name ends in `_` and the port, where the address has "
    "one. Changes must come from a page of the service.",
)


def create_app(
    settings: Settings,
    database: Database | None = None,
    clock: Clock | None = None,
    *,
    data_are_here: bool = False,
    why_no_worker: Callable[[], WorkerFault | None] | None = None,
) -> FastAPI:
    """The application. A database that is not given is opened from the settings, and closed with the application.

    Args:
        clock: tells the time; None: the database does.
        data_are_here: whether trials train on this machine, so that the data which jobs name can be looked at.
        why_no_worker: tells what keeps the worker from being there that is started beside it; None: there is none.
    """
    opened = database or Database(settings.resolved_database_url, num_connections=settings.database_connections)
    clock = clock or opened.now
    turns, probe = Turns(opened.num_connections), Probe(opened)
    observed = Metrics(opened, version=version(), lease_seconds=settings.lease_seconds, clock=clock)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        turns.provide_threads()
        yield
        app.state.feed.close()
        await app.state.authentication.finish()
        await app.state.database_version.finish()
        probe.close()
        observed.close()
        if database is None:
            opened.close()

    app = Application(
        title="Shampoo tuner",
        version=version(),
        description=DESCRIPTION,
        openapi_tags=TAGS,
        servers=SERVERS,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        routes=[*_routes()],
    )
    app.state.problem_page = error_pages.problem_page
    app.state.settings = settings
    app.state.data_are_here = data_are_here
    app.state.why_no_worker = why_no_worker
    app.state.database = opened
    app.state.clock = clock
    app.state.turns = turns
    app.state.probe = probe
    app.state.metrics = observed
    app.state.trial_memory = TrialMemory()
    app.state.preparations = Preparations()
    app.state.downloads = checkpoints.RunningDownloads()
    app.state.uploads = code.Uploads()
    app.state.authentication = Authentication(opened, turns, settings)
    app.state.database_version = DatabaseVersion(opened, turns.one)
    app.state.answers = Answers(opened, turns)
    app.state.feed = EventFeed(
        opened,
        turns,
        observed,
        clock,
        max_streams=MAX_STREAMS,
        max_streams_per_address=MAX_STREAMS_PER_ADDRESS,
    )
    app.add_middleware(BodyLimit, limit=Limit(settings.max_request_bytes, BODY_SECONDS), others=LARGER_BODIES)
    # The length of compressed text tells of a secret that stands beside text of a listener's choice (BREACH): no body
    # holds one. Streams of events are passed on as they are, and thereby at once.
    app.add_middleware(GZipMiddleware, compresslevel=6)
    app.add_middleware(Guard, authentication=app.state.authentication, clock=clock)
    app.add_middleware(VersionGate, version=app.state.database_version, clock=clock)
    app.add_middleware(Head)
    app.add_middleware(OriginCheck, allowed_hosts=settings.answered_hosts)
    app.add_middleware(AnswerTimes, metrics=observed)
    app.add_middleware(RequestIds, logs_requests=settings.log_requests)  # the last one added is the first one asked
    problems.install(app)
    app.add_exception_handler(404, error_pages.unknown_address)
    app.add_exception_handler(NotFound, error_pages.unknown_thing)
    for path, static in static_mounts():
        app.mount(path, static)
    app.mount(documentation.SWAGGER_PATH, StaticFiles(directory=documentation.swagger_directory()))
    return app


@functools.cache
def _routes() -> tuple[BaseRoute, ...]:
    """The routes of the API and the dashboard. What FastAPI works out at their first request, it does once for
    all applications of a process."""
    router = APIRouter(
        generate_unique_id_function=_operation_id,
        dependencies=[Depends(check_address)],
        responses=problems.documented(421),
    )
    strict = [Depends(refuse_unknown_parameters)]
    # For the documentation alone: `Guard` does the work, for these and for all other routes.
    schemes = [Depends(_BEARER), Depends(_COOKIE)]
    of_trials = (trials, trial_plots, measurements, output, checkpoints, external)
    of_jobs = (jobs, kept_jobs, insights, plots, export, weights, *of_trials)
    for module in (*of_jobs, code, events, webhooks, recommendations, catalogue, access, metrics):
        router.include_router(
            module.router, dependencies=[*schemes, *strict], responses=problems.documented(401, 403, 429)
        )
    router.include_router(health.router, dependencies=strict)
    for of_page in routes.ROUTERS:
        router.include_router(of_page)
    return tuple(router.routes)


def _operation_id(route: APIRoute) -> str:
    return route.name
