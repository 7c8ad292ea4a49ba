"""Data of the charts of a job's page: its curves and its best values, whole or as what has come since."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from service.api.conditional import IfNoneMatch, is_known
from service.api.dependencies import JobId, Now, ReadSession
from service.api.figures import MAX_CURVES, side_labels
from service.api.one_thread import OneThreadRoute
from service.api.paging import LARGEST_BIGINT
from service.dashboard.charts import best, curves, timeline
from service.dashboard.charts.answering import moment_of
from service.dashboard.charts.curves import CurveAxis
from service.dashboard.charts.sides import groups_of, sides_of
from service.domain import Phase, Side
from service.store.models import Job
from service.store.repositories import EventRepository, JobRepository
from service.store.repositories.of_trials.chart_rows import ChartConfig, ChartRepository, ChartTrial
from service.store.session import Session

MAX_EVENTS = 500
"""Told as what has come since; after more of them all is sent anew."""
MAX_DRAWN = 3 * MAX_CURVES // 2
"""Curves that an open page may have come to draw; then they are chosen anew."""

router = APIRouter(route_class=OneThreadRoute)

Since = Annotated[int | None, Query(ge=0, le=LARGEST_BIGINT)]
"""The event up to which the reader has everything; None: it has nothing."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of the trials of a job since an event."""

    first_steps: dict[int, int]
    """Trials that were measured, and the first step of it."""
    turned: set[int]
    """Trials that were begun, paused, ended or taken up again."""

    @property
    def numbers(self) -> set[int]:
        return self.turned | set(self.first_steps)


def changes_of(session: Session, job: Job, since: int | None) -> Changes | None:
    """None: the reader has nothing, or so much has happened that all is sent anew."""
    if since is None:
        return None
    events = EventRepository(session).after(since, project=None, job_id=job.id, limit=MAX_EVENTS + 1)
    if len(events) > MAX_EVENTS:
        return None
    first_steps: dict[int, int] = {}
    for event in events:
        if event.kind == "trial.measured":
            number, step = event.data["number"], event.data["step"]
            first_steps[number] = min(step, first_steps.get(number, step))
    return Changes(first_steps, {event.data["number"] for event in events if event.kind == "trial.state"})


@router.get("/jobs/{job_id}/charts/curves", include_in_schema=False)
def read_curves(
    session: ReadSession,
    job_id: JobId,
    known: IfNoneMatch = None,
    metric: Annotated[str | None, Query(max_length=200)] = None,
    x: CurveAxis | None = None,
    since: Since = None,
    have: Annotated[str, Query(max_length=2000, pattern=r"^(\d{1,9}(,\d{1,9})*)?$")] = "",
) -> Response:
    """The learning curves of a job: those that are drawn, or what has come to those that the reader has.

    Args:
        metric: None: the first objective.
        x: None: the axis to begin with.
        have: numbers of the trials whose curves the reader has.
    """
    job = JobRepository(session).get(job_id)
    moment = moment_of(session, job)
    if since is None and is_known(moment.tag, known):
        return moment.unchanged()
    there = {int(number) for number in have.split(",") if number}
    changes = changes_of(session, job, since) if len(there) <= MAX_DRAWN else None
    asked = metric or job.metric
    if changes is None:
        return moment.answer(_all_curves(session, job, asked, x))
    return moment.answer(_further_curves(session, job, asked, x or "step", changes, there))


def _all_curves(session: Session, job: Job, metric: str, axis: CurveAxis | None) -> dict[str, Any]:
    charts = ChartRepository(session)
    trials = charts.trials(job.id)
    choice = curves.chosen(trials, job.direction)
    found = charts.curves([trial.id for trial in choice.drawn], metric)
    configs = charts.configs(job.id, [trial.number for trial in choice.drawn])
    num_ranks = job.specification.resources.workers_per_trial
    axes = curves.axes_of(found.points, configs, num_ranks=num_ranks)
    over = axis if axis in axes else axes[0]
    return {
        "whole": True,
        "metric": metric,
        "direction": next((each.direction.value for each in job.objectives if each.metric == metric), None),
        "metrics": found.metrics,
        "axes": axes,
        "over": over,
        "groups": [group.columns() for group in groups_of(side_labels(job.specification))],
        "rungs": curves.rungs_of(trials) if over == "step" else [],
        "num_measured": choice.num_measured,
        "num_best": choice.num_best,
        "num_training": choice.num_training,
        "curves": curves.curve_columns(
            choice.drawn,
            found.points,
            configs,
            _sides(job, trials, choice.drawn, configs),
            axis=over,
            num_ranks=num_ranks,
        ),
    }


def _further_curves(
    session: Session, job: Job, metric: str, axis: CurveAxis, changes: Changes, have: set[int]
) -> dict[str, Any]:
    """The curves of trials that are new to the reader or have begun, paused or ended, and the ends of others."""
    charts = ChartRepository(session)
    changed = [trial for trial in charts.trials(job.id, changes.numbers) if trial.step]
    first = {
        trial.id: 0 if trial.number in changes.turned or trial.number not in have else changes.first_steps[trial.number]
        for trial in changed
    }
    found = charts.ends_of_curves(first, metric)
    configs = charts.configs(job.id, [trial.number for trial in changed])
    repeated = charts.trials(job.id, {trial.confirms for trial in changed if trial.confirms is not None})
    columns = curves.curve_columns(
        changed,
        found.points,
        configs,
        _sides(job, [*repeated, *changed], changed, configs),
        axis=axis,
        num_ranks=job.specification.resources.workers_per_trial,
    )
    return {"whole": False, "from": [first[trial.id] for trial in changed], "curves": columns}


def _sides(
    job: Job, trials: Sequence[ChartTrial], drawn: Sequence[ChartTrial], configs: dict[int, ChartConfig]
) -> dict[int, Side]:
    optimizers = {number: config.optimizer for number, config in configs.items()}
    # Of a confirmed trial that is not drawn itself: those that repeat it have its config.
    optimizers |= {trial.confirms: optimizers[trial.number] for trial in drawn if trial.confirms is not None}
    return sides_of(trials, optimizers, _baselines(job))


def _baselines(job: Job) -> list[str]:
    return [side for side in side_labels(job.specification) if side not in (Phase.SEARCH, Phase.CONFIRMATION)]


@router.get("/jobs/{job_id}/charts/best", include_in_schema=False)
def read_best(
    session: ReadSession,
    job_id: JobId,
    known: IfNoneMatch = None,
    since: Since = None,
    finished: Annotated[int, Query(ge=0, le=LARGEST_BIGINT)] = 0,
) -> Response:
    """The best value that each side has found so far, or the trials that have ended since.

    Args:
        finished: trials that had ended, as far as the reader knows.
    """
    job = JobRepository(session).get(job_id)
    moment = moment_of(session, job)
    if since is None and is_known(moment.tag, known):
        return moment.unchanged()
    charts = ChartRepository(session)
    labels, baselines = side_labels(job.specification), _baselines(job)
    optimizers = charts.optimizers(job.id, Phase.BASELINE) if len(baselines) > 1 else {}
    changes = changes_of(session, job, since)
    if changes is not None:
        changed = charts.trials(job.id, changes.turned)
        ended = best.finished_of(changed, sides_of(changed, optimizers, baselines), started_at=job.started_at)
        # A trial that had ended and was taken up again takes back what the reader has drawn.
        if finished + len(ended) == charts.num_finished(job.id):
            return moment.answer({"whole": False, "finished": best.changed_rows(ended)})
    trials = charts.trials(job.id)
    rows = best.finished_of(trials, sides_of(trials, optimizers, baselines), started_at=job.started_at)
    groups = [group for group in groups_of(labels) if group.key in {row.side for row in rows}]
    content = {
        "whole": True,
        "metric": job.metric,
        "direction": job.direction.value,
        "finished": len(rows),
        "groups": [group.columns() for group in groups_of(labels) if group.key in labels],
        "sides": {
            group.key: best.side_columns([row for row in rows if row.side == group.key], job.direction)
            for group in groups
        },
    }
    return moment.answer(content)


@router.get("/jobs/{job_id}/charts/timeline", include_in_schema=False)
def read_timeline(
    session: ReadSession,
    now: Now,
    job_id: JobId,
    known: IfNoneMatch = None,
    first: Annotated[int, Query(ge=0, le=LARGEST_BIGINT)] = 0,
) -> Response:
    """Reads what ran when, and the tree of forks.

    Args:
        first: the first stretch that may have changed since the reader asked; those before stay as they were.
    """
    job = JobRepository(session).get(job_id)
    moment = moment_of(session, job)
    if job.state.is_final and is_known(moment.tag, known):
        return moment.unchanged()
    charts = ChartRepository(session)
    trials = charts.lanes(job.id)
    stretches = timeline.stretches_of(trials, charts.turns(job.id), now=job.finished_at or now)
    lanes = timeline.lanes_of(stretches)
    num_lanes = max(lanes, default=-1) + 1
    origin = job.started_at or job.created_at
    content = {
        "first": min(first, len(stretches)),
        "num_lanes": num_lanes,
        "told": timeline.summary(trials, stretches, num_lanes),
        "metric": job.metric,
        "endings": [ending.value for ending in timeline.StretchEnding],
        "places": timeline.places_told(stretches[first:]),
        "stretches": timeline.timeline_columns(stretches[first:], lanes[first:], origin=origin),
        "forks": timeline.fork_columns(timeline.forks_of(trials)),
    }
    return moment.answer(content)
