"""Jobs, trials and curves as studies show them: columns, not entities, in a few statements however many trials."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, ScalarSelect, Select, cast, exists, func, select
from sqlalchemy.orm import Session, aliased, load_only

from search_spaces import Scalar
from service.domain import FailureReason, JobState, Objective, Phase, Side, TrialState, side_of
from service.specification.job import JobSpecification
from service.store.models import Event, Job, RecommendationRow, Trial
from service.store.repositories.of_trials.measurements import MeasurementRepository


@dataclass(frozen=True, slots=True)
class StudyJob:
    """A job without its specification."""

    number: int
    """The number of its first event: whole, unique, never given again, and higher for later jobs."""
    id: str
    name: str
    workload: str
    model: str | None
    state: JobState
    objectives: tuple[Objective, ...]
    fingerprint: str | None
    """The fingerprint of its model, once it is known."""
    is_confirming: bool
    """True if it has trials of its confirmation."""


@dataclass(frozen=True, slots=True)
class StudyTrial:
    """A trial without its measurements. Two equal ones have the same measurements."""

    id: str
    number: int
    phase: Phase
    state: TrialState
    reason: FailureReason | None
    detail: str | None
    parameters: dict[str, Scalar]
    metrics: dict[str, float | None]
    """The metrics at `step`."""
    optimizer: str
    seed: int
    confirms: int | None
    found_in: Phase | None
    """The phase of the trial that it confirms."""
    forked_from: int | None
    proposed: bool
    step: int
    spent_seconds: float
    runs: int
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    @property
    def side(self) -> Side:
        """The side whose space its parameters are of; for a repeat, that of the trial that it repeats."""
        return side_of(self.found_in or self.phase, self.optimizer)


class StudyRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def jobs(self) -> list[StudyJob]:
        """All jobs, newest first."""
        return self._jobs(_jobs().order_by(_number().desc()))

    def job(self, job_id: str) -> StudyJob | None:
        """The job with this id, if there is one."""
        return next(iter(self._jobs(_jobs().where(Job.id == job_id))), None)

    def numbered(self, number: int) -> StudyJob | None:
        """The job whose first event has this number, if there is one."""
        its_job = select(Event.job_id).where(Event.id == number).scalar_subquery()
        found = self._jobs(_jobs().where(Job.id == its_job))
        return next((job for job in found if job.number == number), None)

    def specifications(self, job_ids: Sequence[str]) -> dict[str, JobSpecification]:
        """The specifications of these jobs by id."""
        jobs = self._session.scalars(
            select(Job).where(Job.id.in_(job_ids)).options(load_only(Job.id, Job.stored_specification, raiseload=True))
        )
        return {job.id: job.specification for job in jobs}

    def trials(self, job_id: str, phase: Phase, *, optimizer: str | None = None) -> list[StudyTrial]:
        """The trials of a phase of a job by number; `optimizer`: those that train with it alone."""
        statement = _trials().where(Trial.job_id == job_id, Trial.phase == phase).order_by(Trial.number)
        if optimizer is not None:
            statement = statement.where(_optimizer() == optimizer)
        return self._trials(statement)

    def trial(self, job_id: str, number: int) -> StudyTrial | None:
        """A trial of a job, if there is one with this number."""
        return next(iter(self._trials(_trials().where(Trial.job_id == job_id, Trial.number == number))), None)

    def curves(self, trial_ids: Sequence[str], metric: str) -> dict[str, dict[int, float]]:
        """A metric of these trials: {trial id: {step: value}} by step; NaN: it was not finite."""
        curves = MeasurementRepository(self._session).curves(trial_ids, metric)
        return {
            trial_id: {step: math.nan if value is None else value for step, value in curve}
            for trial_id, curve in curves.items()
        }

    def _jobs(self, statement: Select[Job, int, Any, bool]) -> list[StudyJob]:
        return [
            StudyJob(
                number=number,
                id=job.id,
                name=job.name,
                workload=job.workload,
                model=job.model,
                state=job.state,
                objectives=job.objectives,
                fingerprint=fingerprint,
                is_confirming=is_confirming,
            )
            for job, number, fingerprint, is_confirming in self._session.execute(statement)
        ]

    def _trials(self, statement: Select[Any]) -> list[StudyTrial]:
        return [StudyTrial(*row) for row in self._session.execute(statement)]


def _number() -> ScalarSelect[int]:
    """The number of the first event of the job of the enclosing statement: every job has one from its submission on."""
    return select(func.min(Event.id)).where(Event.job_id == Job.id).correlate(Job).scalar_subquery()


def _jobs() -> Select[Job, int, Any, bool]:
    """A statement for the columns of a `StudyJob`."""
    first_trial, repeat = aliased(Trial), aliased(Trial)
    own = func.coalesce(
        select(RecommendationRow.fingerprint).where(RecommendationRow.job_id == Job.id).scalar_subquery(),
        select(first_trial.fingerprint)
        .where(first_trial.job_id == Job.id, first_trial.number == 0)
        .correlate(Job)
        .scalar_subquery(),
    )
    is_confirming = exists().where(repeat.job_id == Job.id, repeat.phase == Phase.CONFIRMATION).correlate(Job)
    columns = (Job.id, Job.name, Job.workload, Job.model, Job.state, Job.stored_objectives)
    found = select(Job, _number(), own, is_confirming).where(Job.deleted_at.is_(None))
    return found.options(load_only(*columns, raiseload=True))


def _optimizer() -> ColumnElement[str]:
    name: ColumnElement[str] = Trial.config[("optimizer", "name")].as_string()
    return name


def _trials() -> Select[Any]:
    """A statement for the columns of a `StudyTrial`, in the order of its fields."""
    found_by = aliased(Trial)
    found_in = select(found_by.phase).where(found_by.job_id == Trial.job_id, found_by.number == Trial.confirms)
    return select(
        Trial.id,
        Trial.number,
        Trial.phase,
        Trial.state,
        Trial.reason,
        Trial.detail,
        Trial.parameters,
        Trial.metrics,
        _optimizer(),
        cast(Trial.config["seed"].as_string(), BigInteger),  # as an integer it would have 32 bits
        Trial.confirms,
        found_in.correlate(Trial).scalar_subquery(),
        Trial.forked_from,
        Trial.proposed,
        Trial.step,
        Trial.spent_seconds,
        Trial.runs,
        Trial.created_at,
        Trial.started_at,
        Trial.finished_at,
    )
