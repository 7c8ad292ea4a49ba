"""Insights into a job's hyperparameters, with their charts, and the health of its search: what a reader should know
before relying on its answer."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from service.api import problems
from service.api.dependencies import JobId, Now, ReadSession, TrialMemoryDependency
from service.api.figures.insights import TELLING, InsightTrial, map_figure, slice_figure
from service.api.one_thread import OneThreadRoute
from service.api.schemas.insights import InsightsRead, JobHealth
from service.domain import Phase, Side, side_of
from service.errors import InvalidInput, NotFound
from service.evidence.finished_trial import TrialEnding
from service.evidence.insights import ParameterInsight, SideInsights
from service.store.models import Job, JobInsightsRow
from service.store.repositories import InsightsRepository, JobRepository, RecommendationRepository
from service.use_cases.health import health_of_job
from service.use_cases.progress import progress_of

router = APIRouter(prefix="/v1/jobs/{job_id}", tags=["jobs"], route_class=OneThreadRoute)

OfSide = Annotated[Side, Query(max_length=200, description="`search`, or a baseline by its optimizer's name.")]
Label = Query(max_length=1000, description="The name of a parameter; where one name has several ranges, its label.")


@router.get("/insights", summary="Read what a job's trials tell", responses=problems.documented(404, 422, 503))
def read_insights(session: ReadSession, job_id: JobId) -> InsightsRead:
    """The importance of each hyperparameter, in which direction it is better, the range that is safe, maps of the
    strongest pairs, and what settings that cost less than the best config's would lose and gain, by side, as the job's
    run last computed them: when a tenth more trials have ended, and at its end. 404 until 12 trials have ended, or the
    job.
    """
    return InsightsRead.of(_stored(session, JobRepository(session).get(job_id)))


@router.get(
    "/plots/slice",
    summary="A chart of a job's trials over one parameter, as a Plotly figure",
    responses=problems.documented(404, 422, 503),
)
def read_slice(
    session: ReadSession,
    job_id: JobId,
    parameter: Annotated[str, Label],
    side: OfSide = Phase.SEARCH.value,
) -> dict[str, Any]:
    """`{"data": [...], "layout": {...}}` for Plotly: each trial's objective, the diverged at the upper edge, the range
    of the best shaded; `layout.meta.table` has the same as a table."""
    job = JobRepository(session).get(job_id)
    found = _side(_stored(session, job), side)
    return slice_figure(
        _trials(session, job, found),
        _parameter(found, "parameter", parameter)[1],
        side=side,
        metric=job.metric,
        direction=job.direction,
    )


@router.get(
    "/plots/map",
    summary="A chart of a job's trials over two parameters, as a Plotly figure",
    responses=problems.documented(404, 422, 503),
)
def read_map(
    session: ReadSession,
    job_id: JobId,
    x: Annotated[str, Label],
    y: Annotated[str, Label],
    side: OfSide = Phase.SEARCH.value,
) -> dict[str, Any]:
    """`{"data": [...], "layout": {...}}` for Plotly: the trials, the diverged marked, and of the strongest pairs how
    the trials near each place do; `layout.meta.table` has the best places as a table."""
    job = JobRepository(session).get(job_id)
    found = _side(_stored(session, job), side)
    (column, across), (row, upwards) = _parameter(found, "x", x), _parameter(found, "y", y)
    if column == row:
        raise InvalidInput("y", f"must be another parameter than {x!r}")
    ground = next((one.along(column, row) for one in found.maps if {one.x, one.y} == {column, row}), None)
    return map_figure(_trials(session, job, found), across, upwards, ground, side=side, direction=job.direction)


@router.get("/health", summary="Read a job's health", responses=problems.documented(404, 422, 503))
def read_job_health(session: ReadSession, now: Now, memory: TrialMemoryDependency, job_id: JobId) -> JobHealth:
    """Findings about a job, in words and each with what to do: an under-tuned baseline, a noisy metric, ... Empty if
    nothing is wrong. Best values at the edge of their ranges are a caveat of the recommendation, once there is one."""
    job = JobRepository(session).get(job_id)
    progress = progress_of(session, [job], now=now, memory=memory)[job.id]
    stored = RecommendationRepository(session).of_job(job.id)
    evidence = None if stored is None else stored.evidence
    return JobHealth(items=health_of_job(session, job, progress, evidence))


def _stored(session: ReadSession, job: Job) -> JobInsightsRow:
    stored = InsightsRepository(session).of_job(job.id)
    if stored is None:
        raise NotFound(f"insights of the {job.state} job", job.id)
    return stored


def _side(stored: JobInsightsRow, side: Side) -> SideInsights:
    sides = stored.insights.sides
    found = next((one for one in sides if one.side == side), None)
    if found is None:
        raise InvalidInput("side", f"{side!r} is none of the job's (there is {', '.join(one.side for one in sides)})")
    return found


def _parameter(side: SideInsights, field: str, label: str) -> tuple[int, ParameterInsight]:
    known = [one.label for one in side.parameters]
    if label not in known:
        raise InvalidInput(field, f"{label!r} is no parameter of this side (there is {', '.join(known)})")
    return known.index(label), side.parameters[known.index(label)]


def _trials(session: ReadSession, job: Job, side: SideInsights) -> list[InsightTrial]:
    """The trials of a side that say something of the objective."""
    return [
        InsightTrial(row.number, ending, row.parameters, row.value)
        for row in InsightsRepository(session).ended(job.id)
        if side_of(row.phase, row.optimizer) == side.side and (ending := TrialEnding(row.state, row.reason)) in TELLING
    ]
