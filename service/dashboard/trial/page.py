"""A trial's page: why it ended, its curves, its config beside the best one, what it took, what it printed."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, get_args

from fastapi import APIRouter, Query, Request, Response

from search_spaces import SearchSpace
from service.access.caller import Scope
from service.access.permitted import may_have_run
from service.api.conditional import IfNoneMatch
from service.api.dependencies import CallerDependency, Now, ReadSession, SettingsDependency
from service.api.figures.min_max import MinMax, fewest_points
from service.api.figures.trial_curve import CurveAxis, CurveScale, thin_curve
from service.api.one_thread import OneThreadRoute
from service.api.paging import LARGEST_INT
from service.api.routers.of_trials.output import Wanted
from service.dashboard.rendering import live_parts, page
from service.dashboard.trial import metrics, view
from service.dashboard.written_json import written
from service.domain import Direction, FailureReason, Phase, TrialState, side_of
from service.errors import TrialNotFound
from service.evidence.in_words.trial_words import RepeatedTrial, Standing, account_of, facts_of
from service.evidence.in_words.wording import measured_words
from service.places import lines_of, words_by_run
from service.specification.phases import spaces_of
from service.store.models import Job, Trial
from service.store.repositories import EventRepository, JobRepository, MeasurementRepository, TrialRepository
from service.store.repositories.of_trials.measurements import StoredMeasurement
from service.store.repositories.of_trials.outputs import OutputRepository
from service.store.repositories.of_trials.trial_relations import PlaceAmongOthers, TrialRelationRepository
from service.store.session import Session
from service.use_cases.keeping.checkpoints import trials_that_go_on
from service.use_cases.steer_trials import RETRIABLE
from service.use_cases.trials.trial_curves import Origin, best_of_baselines, best_of_side, origin_of, trial_curve
from service.use_cases.trials.trial_pasting import config_to_paste

LINES_SHOWN = 100
"""Lines that its ranks printed last; the page of its output has more."""
ROWS_SHOWN = 100
"""Rows of the table behind the chart."""
MAX_MEASUREMENTS = 200
"""Measurements that the small charts are drawn from, at most, unless many metrics need more to show their peaks."""
TYPICAL_OF = 100
"""Trials whose memory and step time a trial's are compared with."""

router = APIRouter(route_class=OneThreadRoute)

_Choice = Annotated[str | None, Query(max_length=200)]


@router.get("/jobs/{job_id}/trials/{number}", include_in_schema=False)
def trial_page(
    request: Request,
    session: ReadSession,
    caller: CallerDependency,
    settings: SettingsDependency,
    now: Now,
    job_id: str,
    number: str,
    metric: _Choice = None,
    x: _Choice = None,
    scale: _Choice = None,
    rank: Annotated[int | None, Query(ge=0, le=LARGEST_INT)] = None,
    known: IfNoneMatch = None,
    parts: bool = False,
) -> Response:
    """One trial. What cannot be chosen of metric, axis and scale is as if nothing was chosen.

    Args:
        parts: what changes while the trial runs, alone; an open page asks for it.
    """
    last_event = EventRepository(session).last_id(job_id)  # before all else: what happens meanwhile is told again
    job = JobRepository(session).get(job_id)
    trial = TrialRepository(session).get(job_id, trial_number(job_id, number))
    relations = TrialRelationRepository(session)
    origin = origin_of(session, trial)
    best = best_of_side(session, job, origin)
    is_best = best is not None and best.best.number == trial.number
    others_best = None if is_best else best
    groups = metrics.tile_groups(_measurements(session, trial), [objective.metric for objective in job.objectives])
    measured = [tile.name for group in groups for tile in group.tiles]
    chosen = metric if metric in measured else job.metric
    curve = trial_curve(session, job, trial, chosen)
    baseline = best_of_baselines(session, job)
    before, after = relations.neighbours(job.id, trial.number)
    _, python = config_to_paste(job, trial)
    parameters = view.parameter_rows(
        trial.parameters, others_best.parameters if others_best else None, _space(job, origin)
    )
    may_steer = caller.may(Scope.SUBMIT)
    may_run_again = may_have_run(job.specification.workload, job.specification.sampler, settings, caller=caller)
    kept_until = _kept_until(session, job, trial, kept=settings.checkpoints_kept)
    context = {
        "is_whole": not parts,
        "job": job,
        "trial": trial,
        "now": now,
        "last_event": last_event,
        "origin": origin,
        "account": account_of(
            facts_of(trial, job.state), _standing(session, job, trial, origin), _repeated(session, job, trial)
        ),
        "advice_places": view.advice_places(trial.reason, job.id, may_clone=may_steer and may_run_again),
        "before": before,
        "after": after,
        "best": None if others_best is None else others_best.best,
        "by_seeds": best.best if best is not None and is_best and best.best.num_new_seeds else None,
        "is_best": is_best,
        "baseline": baseline,
        "may_steer": may_steer,
        "may_run_again": may_run_again,
        "may_have_checkpoints": not trial.state.is_final or (kept_until is not None and now <= kept_until),
        "checkpoints_kept_until": kept_until,
        "is_retriable": trial.state in RETRIABLE and trial.forked_from is None,
        "groups": groups,
        "metric": chosen,
        "curve": curve,
        "rows": thin_curve(curve.points, ROWS_SHOWN),
        "band_at": {point.step: point for point in curve.band.points} if curve.band else {},
        "x": x if x in get_args(CurveAxis) else "step",
        "axes": get_args(CurveAxis),
        "scale": scale if scale in get_args(CurveScale) else "auto",
        "scales": get_args(CurveScale),
        "measured_words": measured_words,
        "parameters": parameters,
        "extremes": view.edge_words(parameters) if trial.reason is FailureReason.DIVERGED else [],
        "costs": _costs(session, job, trial, origin, baseline.optimizer if baseline else None),
        "confirmed_by": relations.confirmed_by(job.id, trial.number),
        "forks": relations.forks_of(job.id, trial.number) if job.specification.pruner.name == "pbt" else [],
        "environment": trial.stored_environment,
        "places": lines_of(words_by_run(trial.places)),
        "python": python,
        "config": written(trial.config),
        "rank": rank,
        "ranks": [] if parts else OutputRepository(session).ranks(trial.id),
        "chunks": [] if parts else Wanted(trial.id, rank=rank).tail(session, LINES_SHOWN),
        "num_lines": LINES_SHOWN,
    }
    if parts:
        return live_parts(request, "trial/page.html", context, known)
    return page(request, "trial/page.html", context)


def _kept_until(session: Session, job: Job, trial: Trial, *, kept: timedelta) -> datetime | None:
    """The time up to which the checkpoints stay of a trial that its job's budget cut off; None: it was not."""
    ended = job.finished_at
    if ended is None or trial.state is not TrialState.CANCELLED:
        return None
    return ended + kept if trial.number in trials_that_go_on(session, job, kept=kept, now=ended) else None


def _standing(session: Session, job: Job, trial: Trial, origin: Origin) -> Standing | None:
    """The place of a trial that was pruned or completed; None: it has none."""
    if trial.value is None or trial.phase is Phase.CONFIRMATION:
        return None
    relations = TrialRelationRepository(session)
    if trial.state is TrialState.COMPLETED:
        place = relations.place_of(trial, origin.phase, origin.optimizer, job.direction)
    elif trial.state is TrialState.PRUNED:
        found = relations.measured_at(
            job.id, origin.phase, origin.optimizer, step=trial.step, metric=job.metric, before=trial.finished_at
        )
        others = [value for number, value in found.items() if number != trial.number]
        num_better = sum(job.direction.is_better(value, than=trial.value) for value in others)
        best = min if job.direction is Direction.MINIMIZE else max
        place = PlaceAmongOthers(len(others), num_better, best(others, default=None))
    else:
        return None
    return Standing(job.metric, trial.step, trial.value, place.num_others, place.num_better, place.best)


def _repeated(session: Session, job: Job, trial: Trial) -> RepeatedTrial | None:
    """The trial whose config one repeats; None: it repeats none."""
    found_by = None if trial.confirms is None else TrialRepository(session).find(job.id, trial.confirms)
    return None if found_by is None else RepeatedTrial(found_by.number, job.metric, found_by.value, trial.value)


def _measurements(session: Session, trial: Trial) -> list[StoredMeasurement]:
    """The measurements of a trial; if there are many, those with the peaks of its metrics."""
    measurements = MeasurementRepository(session)
    steps, names = measurements.steps(trial.id), measurements.metric_names(trial.id)
    if steps is None:
        return []
    curve = MinMax[StoredMeasurement](
        first_step=steps[0],
        last_step=steps[1],
        num_curves=max(1, len(names)),
        max_points=max(MAX_MEASUREMENTS, fewest_points(len(names))),
    )
    for measurement in measurements.scan(trial.id):
        values = measurement.metrics
        curve.take(measurement.step, [values.get(name) for name in names], measurement)
    return list(curve.points())


def _space(job: Job, origin: Origin) -> SearchSpace | None:
    return spaces_of(job.specification, num_steps=job.num_steps).get(side_of(origin.phase, origin.optimizer))


def _costs(session: Session, job: Job, trial: Trial, origin: Origin, baseline: str | None) -> list[view.CostRow]:
    relations = TrialRelationRepository(session)
    alike = relations.last_metrics(job.id, origin.phase, origin.optimizer, limit=TYPICAL_OF)
    of_baseline: list[Any] = []
    if baseline is not None:
        of_baseline = list(relations.last_metrics(job.id, Phase.BASELINE, baseline, limit=TYPICAL_OF))
    limit = job.specification.resources.memory_per_worker
    return view.cost_rows(trial.metrics, alike, of_baseline, memory_limit=limit)


def trial_number(job_id: str, text: str) -> int:
    """A trial's number.

    Raises:
        NotFound: no trial can have it.
    """
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(LARGEST_INT))
    if not is_number or int(text) > LARGEST_INT:
        raise TrialNotFound(job_id, text)
    return int(text)
