"""The page that compares jobs, and its chart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from search_spaces.optimizers import ARGUMENTS
from service.access.caller import Caller
from service.api.dependencies import CallerDependency, Now, ReadSession, TrialMemoryDependency
from service.api.figures import Figure, phase_labels
from service.api.one_thread import OneThreadRoute
from service.dashboard.compare import view
from service.dashboard.compare.chart import COLOURS, Axis, DrawnJob, best_so_far_of
from service.dashboard.compare.differences import ComparedConfig, config_rows, rows_of, table_of
from service.dashboard.job.view import answer
from service.dashboard.rendering import page
from service.domain import Phase
from service.errors import InvalidInput, JobNotFound
from service.evidence.recommend import pasteable
from service.specification.phases import spaces_of
from service.store.models import Job, RecommendationRow
from service.store.repositories import (
    Archived,
    EventRepository,
    JobListRepository,
    JobQuery,
    JobRepository,
    RecommendationRepository,
    TrialColumnsRepository,
    TrialRepository,
)
from service.store.session import Session
from service.use_cases.progress import JobProgress, progress_of
from service.use_cases.submit import parameter_groups_of

PATH = "/compare"
MAX_OFFERED = 12
"""Jobs that the picker offers."""
MAX_IDS = 100
"""Jobs that an address may name, by judgement: far more than a table can compare."""

router = APIRouter(route_class=OneThreadRoute)

Ids = Annotated[list[str], Query(alias="jobs", max_length=MAX_IDS, default_factory=list)]
"""Ids of jobs, by commas or one by one."""


@router.get(PATH, include_in_schema=False)
def compare_page(
    request: Request,
    session: ReadSession,
    caller: CallerDependency,
    memory: TrialMemoryDependency,
    now: Now,
    ids: Ids,
    text: Annotated[str, Query(max_length=200)] = "",
    rows: Annotated[str, Query(max_length=20)] = "",
) -> HTMLResponse:
    """The jobs side by side; `text` finds others to add, and `rows=all` shows what is equal, too."""
    last_event = EventRepository(session).last_id()  # before all else: what happens meanwhile is told again
    asked = _asked(ids)
    jobs = _jobs(session, caller, asked[: len(view.LETTERS)])
    progress = progress_of(session, jobs, now=now, memory=memory)
    stored = {row.job_id: row for row in RecommendationRepository(session).of_jobs([job.id for job in jobs])}
    compared = [
        _compared(session, letter, job, progress[job.id], stored.get(job.id))
        for letter, job in zip(view.LETTERS, jobs, strict=False)
    ]
    found = JobListRepository(session).page(
        JobQuery(sees=caller.sees, text=text.strip() or None, archived=Archived.ALL),
        limit=MAX_OFFERED + len(compared),
    )
    chosen = [job.id for job in jobs]
    shows_all = rows == "all" or len(jobs) < 2
    context = {
        "now": now,
        "last_event": last_event,
        "jobs": compared,
        "colours": COLOURS,
        "chosen": ",".join(chosen),
        "without": {job_id: _address([other for other in chosen if other != job_id]) for job_id in chosen},
        "offered": [(job, _address([*chosen, job.id])) for job in found if job.id not in chosen][:MAX_OFFERED],
        "num_left_out": len(asked) - len(jobs),
        "is_full": len(jobs) == len(view.LETTERS),
        "text": text,
        "shows_all": shows_all,
        "other_rows": _address(chosen, **({} if shows_all else {"rows": "all"})),
        "obstacle": view.obstacle(compared),
        "cautions": view.cautions(compared) if view.is_comparable(compared) else [],
        "has_chart": view.is_comparable(compared),
        "is_over": all(job.state.is_final for job in jobs),
        "facts": view.facts(compared),
        "specifications": table_of(
            rows_of([job.specification.model_dump(mode="json") for job in jobs]), shows_all=shows_all
        ),
        "configs": table_of(config_rows([one.config for one in compared]), shows_all=shows_all),
    }
    return page(request, "compare/page.html", context)


@router.get(PATH + "/best-so-far", include_in_schema=False)
def compared_plot(session: ReadSession, caller: CallerDependency, ids: Ids, x: Axis = "trials") -> dict[str, Any]:
    """The best values of the jobs so far, as a Plotly figure."""
    jobs = _jobs(session, caller, _asked(ids))
    if not jobs or len(jobs) > len(view.LETTERS):
        raise InvalidInput("jobs", f"must be 1 to {len(view.LETTERS)} ids of jobs, got {len(jobs)}")
    if len({(job.metric, job.direction) for job in jobs}) > 1:
        raise InvalidInput("jobs", "have different objectives: their values are not drawn in one chart")
    return _figure(session, jobs, x)


def _figure(session: Session, jobs: Sequence[Job], axis: Axis) -> Figure:
    trials = TrialColumnsRepository(session)
    drawn = [
        DrawnJob(
            letter=letter,
            started_at=job.started_at,
            num_ranks=job.specification.resources.workers_per_trial,
            optimizer=phase_labels(job.specification)[Phase.SEARCH],
            trials=trials.ended(job.id),
        )
        for letter, job in zip(view.LETTERS, jobs, strict=False)
    ]
    return best_so_far_of(drawn, metric=jobs[0].metric, direction=jobs[0].direction, axis=axis)


def _asked(ids: Sequence[str]) -> list[str]:
    """The ids that are asked for, each once."""
    parts = [part.strip() for given in ids for part in given.split(",")]
    return list(dict.fromkeys(part for part in parts if part))[:MAX_IDS]


def _jobs(session: Session, caller: Caller, ids: Sequence[str]) -> list[Job]:
    """Raises: NotFound: there is no such job for the caller."""
    found = []
    for job_id in ids:
        job = JobRepository(session).get(job_id)
        if caller.sees not in (None, job.project):
            raise JobNotFound(job_id)
        found.append(job)
    return found


def _compared(
    session: Session, letter: str, job: Job, progress: JobProgress, stored: RecommendationRow | None
) -> view.Compared:
    specification = job.specification
    evidence = None if stored is None else stored.evidence
    return view.Compared(
        letter=letter,
        job=job,
        progress=progress,
        answer=answer(
            job.state,
            job.direction,
            progress,
            phase_labels(specification),
            has_baseline=bool(specification.baselines),
            evidence=evidence,
        ),
        evidence=evidence,
        recommendation_id=None if stored is None else stored.id,
        data_digest=None if stored is None else stored.data_digest,
        config=ComparedConfig({}) if progress.best is None else _config(session, job, progress.best.number),
    )


def _config(session: Session, job: Job, number: int) -> ComparedConfig:
    """The config of a trial of the search by the names that its hyperparameters have everywhere."""
    found = pasteable(TrialRepository(session).get(job.id, number).stored_config, parameter_groups_of(job))
    settings = {
        "optimizer": found.optimizer,
        **found.config,
        "schedule": found.schedule,
        "training": found.training,
        "workload": found.workload_options,
    }
    defaults = {
        name: argument.default
        for name, argument in ARGUMENTS.get(found.optimizer, {}).items()
        if argument.optional or argument.default is not None
    }
    return ComparedConfig(settings, spaces_of(job.specification)[Phase.SEARCH].fixed, defaults)


def _address(ids: Sequence[str], **others: str) -> str:
    query = [f"jobs={','.join(quote(job_id, safe='') for job_id in ids)}"] if ids else []
    query += [f"{name}={quote(value)}" for name, value in others.items()]
    return f"{PATH}?{'&'.join(query)}" if query else PATH
