"""Trials with their measurements, and what is asked of many trials at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    ScalarSelect,
    Select,
    bindparam,
    case,
    false,
    func,
    select,
    union_all,
    update,
)
from sqlalchemy.orm import Session, aliased, selectinload

from service.domain import Direction, FailureReason, Phase, TrialRequest, TrialState
from service.errors import TrialNotFound
from service.store.models import Event, Job, MeasurementRow, Trial


@dataclass(frozen=True, slots=True)
class TrialSummary:
    """The number of trials of one job and phase in one state, with the time they trained and the steps they reached."""

    job_id: str
    phase: Phase
    state: TrialState
    count: int
    spent_seconds: float
    num_steps: int
    """Steps of all of them together, as measured; a fork's are counted from its parent's beginning."""
    num_measured: int
    """Number of them that were measured."""


@dataclass(frozen=True, slots=True)
class TrialLengths:
    """The lengths of the trials of one job and phase in one state, which may differ."""

    job_id: str
    phase: Phase
    state: TrialState
    num_trainings: float
    """Whole trainings, as measured, of all of them together: the share of its own steps that each has come, added
    up."""
    whole_steps: int
    """Steps of all of them together, each trained to its end."""


@dataclass(frozen=True, slots=True)
class LeadingTrial:
    """The completed trial of a job and phase with the best value; the earliest of equals."""

    job_id: str
    phase: Phase
    number: int
    value: float
    optimizer: str


@dataclass(frozen=True, slots=True)
class CompletedTrial:
    """The last measurement of a completed trial."""

    job_id: str
    number: int
    phase: Phase
    metrics: dict[str, float | None]


@dataclass(frozen=True, slots=True)
class PlottedTrial:
    """A trial as charts need it."""

    id: str
    number: int
    phase: Phase
    state: TrialState
    reason: FailureReason | None
    optimizer: str
    batch_size: int
    confirms: int | None
    step: int
    value: float | None
    created_at: datetime
    finished_at: datetime | None


class TrialRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, trial: Trial) -> None:
        self._session.add(trial)
        self._session.flush()

    def find(self, job_id: str, number: int) -> Trial | None:
        """The trial of a job that was not deleted, if there is one with this number."""
        statement = select(Trial).where(Trial.job_id == job_id, Trial.number == number)
        statement = statement.join(Job, Job.id == Trial.job_id).where(Job.deleted_at.is_(None))
        return self._session.scalars(statement).one_or_none()

    def get(self, job_id: str, number: int) -> Trial:
        """Raises: NotFound."""
        trial = self.find(job_id, number)
        if trial is None:
            raise TrialNotFound(job_id, number)
        return trial

    def find_by_idempotency_key(self, job_id: str, key: str) -> Trial | None:
        """The trial of a locked job that a key proposed."""
        statement = select(Trial).where(Trial.job_id == job_id, Trial.idempotency_key == key)
        return self._session.scalars(statement).one_or_none()

    def forget_idempotency_keys(self, job_id: str, *, before: datetime) -> None:
        """Removes the keys of the trials of a locked job that were proposed before a time; the trials stay."""
        old = (Trial.job_id == job_id, Trial.idempotency_key.is_not(None), Trial.created_at < before)
        self._session.execute(update(Trial).where(*old).values(idempotency_key=None))

    def next_number(self, job_id: str) -> int:
        """The number of the next trial of a locked job."""
        highest = self._session.scalar(select(func.max(Trial.number)).where(Trial.job_id == job_id))
        return 0 if highest is None else highest + 1

    def page(
        self,
        job_id: str,
        *,
        states: Sequence[TrialState] = (),
        phase: Phase | None = None,
        after_number: int | None = None,
        limit: int | None = None,
    ) -> list[Trial]:
        """Up to `limit` trials of a job by number, beginning after `after_number`; None: all."""
        statement = select(Trial).where(Trial.job_id == job_id).order_by(Trial.number).limit(limit)
        if states:
            statement = statement.where(Trial.state.in_(states))
        if phase is not None:
            statement = statement.where(Trial.phase == phase)
        if after_number is not None:
            statement = statement.where(Trial.number > after_number)
        return list(self._session.scalars(statement))

    def plotted(self, job_id: str) -> list[PlottedTrial]:
        """Every trial of a job by number; a tenth of the time that whole trials take."""
        statement = select(
            Trial.id,
            Trial.number,
            Trial.phase,
            Trial.state,
            Trial.reason,
            Trial.config["optimizer"]["name"].as_string(),
            Trial.config["batch_size"].as_integer(),
            Trial.confirms,
            Trial.step,
            Trial.value,
            Trial.created_at,
            Trial.finished_at,
        ).where(Trial.job_id == job_id)
        return [PlottedTrial(*row) for row in self._session.execute(statement.order_by(Trial.number))]

    def metrics_of_completed(self, job_id: str) -> dict[int, dict[str, float | None]]:
        """The last metrics of each trial of a job that has completed, of the confirmation, too, by number."""
        statement = select(Trial.number, Trial.metrics).where(
            Trial.job_id == job_id, Trial.state == TrialState.COMPLETED
        )
        return {row[0]: row[1] for row in self._session.execute(statement.order_by(Trial.number))}

    def fork_steps(self, job_id: str) -> dict[int, frozenset[int]]:
        """The steps at which others of a job began from a trial, by that trial's number."""
        statement = select(Trial.forked_from, Trial.forked_at_step).where(
            Trial.job_id == job_id, Trial.forked_from.is_not(None)
        )
        found: dict[int, frozenset[int]] = {}
        for number, step in self._session.execute(statement):
            if number is not None and step is not None:
                found[number] = found.get(number, frozenset()) | {step}
        return found

    def with_measurements(self, job_id: str) -> list[Trial]:
        """Every trial of a job by number, with its measurements loaded."""
        statement = (
            select(Trial)
            .where(Trial.job_id == job_id)
            .order_by(Trial.number)
            .options(selectinload(Trial.measurements).selectinload(MeasurementRow.metric_set))
            .execution_options(populate_existing=True)
        )
        return list(self._session.scalars(statement))

    def measured_jobs(self, job_ids: Sequence[str]) -> dict[str, bool]:
        """The jobs among these of which a trial was ever measured, by id: True if one was since the job last began to
        run."""
        measured = select(Trial.id).where(Trial.job_id == Job.id, Trial.step > 0).exists()
        newest = (  # from the end of an index: measurements themselves have none by time
            select(Event.created_at)
            .where(Event.job_id == Job.id, Event.kind == "trial.measured")
            .order_by(Event.id.desc())
            .limit(1)
            .scalar_subquery()
        )
        is_new = func.coalesce(newest >= Job.running_since, false())
        rows = self._session.execute(select(Job.id, is_new).where(Job.id.in_(list(job_ids)), measured))
        return {job_id: bool(was_since) for job_id, was_since in rows}

    def summaries(
        self, job_ids: Iterable[str], *, states: Iterable[TrialState] = tuple(TrialState)
    ) -> list[TrialSummary]:
        """Trial counts of these jobs by phase and state, with the training time and the steps of those trials."""
        rows = self._session.execute(_summaries(), {"job_ids": list(job_ids), "states": list(states)})
        return [TrialSummary(*row) for row in rows]

    def lengths(self, job_ids: Iterable[str]) -> list[TrialLengths]:
        """The progress of the trials of these jobs along their own lengths, by phase and state; reads every config."""
        own_steps = Trial.config["num_steps"].as_float()
        statement = (
            select(Trial.job_id, Trial.phase, Trial.state, func.sum(Trial.step / own_steps), func.sum(own_steps))
            .where(Trial.job_id.in_(list(job_ids)))
            .group_by(Trial.job_id, Trial.phase, Trial.state)
        )
        return [
            TrialLengths(job_id, phase, state, trainings, round(steps))
            for job_id, phase, state, trainings, steps in self._session.execute(statement)
        ]

    def spent_seconds(self, job_id: str) -> float:
        """The training time of all trials of a job."""
        statement = select(func.coalesce(func.sum(Trial.spent_seconds), 0.0)).where(Trial.job_id == job_id)
        return self._session.scalar(statement) or 0.0

    def numbers_to_stop(self, job_id: str) -> list[int]:
        """The trials of a job that are asked to stop."""
        # "IS NOT NULL" is what the index is for.
        asked = select(Trial.number).where(Trial.job_id == job_id, Trial.requested.is_not(None))
        return list(self._session.scalars(asked.where(Trial.requested == TrialRequest.STOP)))

    def leading(self, job_ids: Iterable[str]) -> list[LeadingTrial]:
        """The best trial of each phase of these jobs, in the direction of the job's objective.

        A stored value is a number or missing: what is not finite is stored as missing. Each lookup is the first or the
        last entry of a stretch of the index, however many trials there are.
        """
        rows = self._session.execute(_leading(), {"job_ids": list(job_ids)})
        return [
            LeadingTrial(job_id, phase, number, value, name)
            for job_id, phase, number, value, name in rows
            if value is not None
        ]

    def completed(self, job_ids: Iterable[str]) -> list[CompletedTrial]:
        """The completed trials of search and baseline with a value, of these jobs, each job's by number."""
        # Columns, not entities: with thousands of rows the latter cost several times as much.
        statement = select(Trial.job_id, Trial.number, Trial.phase, Trial.metrics).where(
            Trial.job_id.in_(list(job_ids)),
            Trial.phase != Phase.CONFIRMATION,
            Trial.state == TrialState.COMPLETED,
            Trial.value.is_not(None),
        )
        rows = self._session.execute(statement.order_by(Trial.job_id, Trial.number))
        return [CompletedTrial(*row) for row in rows]


_JOB_IDS: BindParameter[str] = bindparam("job_ids", expanding=True)
_STATES: BindParameter[TrialState] = bindparam("states", expanding=True, type_=Trial.state.type)


# Built once: that takes longer than the database does.
@cache
def _summaries() -> Select[str, Phase, TrialState, int, float, int, Any]:
    """A statement for the columns of a `TrialSummary`."""
    return (
        select(
            Trial.job_id,
            Trial.phase,
            Trial.state,
            func.count(),
            func.sum(Trial.spent_seconds),
            func.sum(Trial.step),
            func.sum(case((Trial.step > 0, 1), else_=0)),
        )
        # Each phase and state is a stretch of the index.
        .where(Trial.job_id.in_(_JOB_IDS), Trial.phase.in_(list(Phase)), Trial.state.in_(_STATES))
        .group_by(Trial.job_id, Trial.phase, Trial.state)
    )


@cache
def _leading() -> Select[Any]:
    """A statement for the columns of a `LeadingTrial`."""
    found = union_all(
        *(
            select(_leading_id(phase).label("id")).where(Job.id.in_(_JOB_IDS))
            for phase in (Phase.SEARCH, Phase.BASELINE)
        )
    ).subquery()
    optimizer = Trial.config["optimizer"]["name"].as_string()
    columns = (Trial.job_id, Trial.phase, Trial.number, Trial.value, optimizer)
    return select(*columns).join(found, Trial.id == found.c.id)


def _leading_id(phase: Phase) -> ScalarSelect[str]:
    """The id of the trial of a phase with the best value, of the job of the enclosing statement."""

    def completed(trial: type[Trial]) -> tuple[ColumnElement[bool], ...]:
        return trial.job_id == Job.id, trial.phase == phase, trial.state == TrialState.COMPLETED

    other = aliased(Trial)
    lowest, highest = (
        select(extreme(other.value)).where(*completed(other)).correlate(Job).scalar_subquery()
        for extreme in (func.min, func.max)
    )
    direction = Job.stored_objectives[0]["direction"].as_string()
    value = case((direction == Direction.MINIMIZE.value, lowest), else_=highest)
    leading = select(Trial.id).where(*completed(Trial), Trial.value == value).order_by(Trial.number).limit(1)
    return leading.correlate(Job).scalar_subquery()
