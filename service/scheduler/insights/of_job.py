"""Insights from the stored trials of a job: reads the trials, and computes the insights for one side after the
other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from search_spaces import SearchSpace
from service.domain import Direction, Side, side_of
from service.evidence.insights import JobInsights
from service.scheduler.insights.compared import EndedTrial, TrialDevices, compared, sampled
from service.scheduler.insights.early_late import MAX_TRIALS, Curve
from service.scheduler.insights.of_side import insights_of_side
from service.scheduler.insights.predicted_cost import GroupShapes, grouped
from service.scheduler.insights.prices import best_trial
from service.specification.phases import spaces_of
from service.store.models import Job
from service.store.repositories import InsightsRepository, JobRepository, MeasurementRepository, ModelShapeRepository
from service.store.repositories.insights import EndedTrialRow
from service.store.session import Session
from service.use_cases.submit import parameter_groups_of


@dataclass(frozen=True, slots=True)
class EndedTrials:
    """The ended trials of a job, with the data that insights need."""

    metric: str
    direction: Direction
    spaces: Mapping[Side, SearchSpace]
    by_side: Mapping[Side, Sequence[EndedTrial]]
    curves: Mapping[str, Curve]
    """The curves of some trials that completed, by the id of the trial."""
    models: Mapping[Side, Sequence[GroupShapes]]
    """The parameters of the best trial's model, for sides with Shampoo if they are known by their shapes."""

    @property
    def num_ended(self) -> int:
        return sum(len(trials) for trials in self.by_side.values())


def read_ended(session: Session, job_id: str) -> EndedTrials:
    """The trials of a job that have ended by now."""
    job = JobRepository(session).get(job_id)
    spaces = spaces_of(job.specification)
    by_side: dict[Side, list[EndedTrial]] = {side: [] for side in spaces}
    repository = InsightsRepository(session)
    confirmed = repository.confirmed(job_id)
    for row in repository.ended(job_id):
        by_side[side_of(row.phase, row.optimizer)].append(_ended(row, confirmed.get(row.number, {})))
    chosen = [trial.id for trials in by_side.values() for trial in _to_follow(trials)]
    curves = MeasurementRepository(session).curves(chosen, job.metric)
    models = {}
    for side, space in spaces.items():
        best = best_trial(compared(by_side[side], space), job.direction) if space.optimizer == "shampoo" else None
        if best is not None and (found := _model(session, job, space, best)) is not None:
            models[side] = found
    return EndedTrials(job.metric, job.direction, spaces, by_side, curves, models)


def _ended(row: EndedTrialRow, confirmed: Mapping[int, float | None]) -> EndedTrial:
    place, seen = None, row.stored_environment
    if seen is not None:
        place = TrialDevices(seen.device, seen.device_name, seen.world_size)
    return EndedTrial(
        row.id,
        row.number,
        row.state,
        row.reason,
        row.parameters,
        row.value,
        progress=row.step / row.num_steps,
        confirmed=confirmed,
        seconds_per_step=row.seconds / row.step if row.step and row.seconds and not row.is_fork else None,
        place=place,
        fingerprint=row.fingerprint,
        state_bytes=row.state_bytes,
    )


def _model(session: Session, job: Job, space: SearchSpace, trial: EndedTrial) -> list[GroupShapes] | None:
    """The parameters of a trial's model in their groups; None: they cannot be told from the shapes."""
    if trial.fingerprint is None:
        return None
    shape = ModelShapeRepository(session).of([trial.fingerprint]).get(trial.fingerprint)
    if shape is None:
        return None
    options = {**job.specification.workload.options, **space.assign(trial.parameters).workload_options}
    return grouped(shape, parameter_groups_of(job), options)


def _to_follow(trials: Sequence[EndedTrial]) -> list[EndedTrial]:
    """The trials whose early values are compared with their last ones."""
    return sampled([trial for trial in trials if trial.has_value], at_most=MAX_TRIALS)


def insights_of(ended: EndedTrials) -> JobInsights:
    """The insights from the trials."""
    sides = [
        insights_of_side(side, space, ended.by_side[side], ended.direction, ended.curves, ended.models.get(side))
        for side, space in ended.spaces.items()
    ]
    return JobInsights(ended.metric, ended.direction, num_ended=ended.num_ended, sides=sides)
