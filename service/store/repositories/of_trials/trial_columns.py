"""Trials as tables and charts show them: columns, not entities, which take several times as long by the thousand."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import String, and_, case, cast, func, or_, select, type_coerce
from sqlalchemy.orm import Session

from service.domain import Direction, FailureReason, Phase, TrialRequest, TrialState
from service.store.models import Trial


@dataclass(frozen=True, slots=True)
class ListedTrial:
    """A trial as a table shows it."""

    number: int
    phase: Phase
    state: TrialState
    requested: TrialRequest | None
    reason: FailureReason | None
    detail: str | None
    parameters: dict[str, Any]
    confirms: int | None
    forked_from: int | None
    forked_at_step: int | None
    proposed: bool
    step: int
    seconds: float
    value: float | None
    optimizer: str
    seed: int
    num_steps: int
    """Steps of the trial if it goes to its end."""


@dataclass(frozen=True, slots=True)
class UnfinishedTrial:
    """A trial that goes on, as far as it has come."""

    number: int
    optimizer: str
    confirms: int | None
    step: int
    num_steps: int
    """Steps of the trial if it goes to its end."""
    value: float | None
    """The first objective as last measured; None: it was not."""


@dataclass(frozen=True, slots=True)
class Remark:
    """A remark of a trial on its data."""

    number: int
    detail: str


@dataclass(frozen=True, slots=True)
class DrawnTrials:
    """Trials as lines through their parameters: a list for each column, read together.

    One by one, and as entities, ten thousand take three times as long.
    """

    numbers: list[int]
    phases: list[Phase]
    states: list[TrialState]
    reasons: list[FailureReason | None]
    values: list[float | None]
    parameters: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class TrialSpending:
    """A trial that has ended, as a chart of what was spent needs it."""

    phase: Phase
    state: TrialState
    value: float | None
    spent_seconds: float
    """Training time in all its runs."""
    finished_at: datetime


@dataclass(frozen=True, slots=True)
class TrialOfModel:
    """A trial that trained to its end, diverged, or was pruned."""

    id: str
    state: TrialState
    step: int
    """The step that it reached."""
    value: float | None
    """The first objective as last measured; None: it diverged."""
    config: dict[str, Any]
    """A `TrialConfig` as JSON."""


@dataclass(frozen=True, slots=True)
class TrialsOfModel:
    """Some of a job's trials that trained to their end, diverged, or were pruned."""

    trials: list[TrialOfModel]
    """The newest first, the pruned ones behind all others."""
    num_all: int
    """The number of which they are the first."""


_PHASES = {phase.value: phase for phase in Phase}
_STATES = {state.value: state for state in TrialState}


_UNFINISHED = (
    Trial.number,
    Trial.config["optimizer"]["name"].as_string(),
    Trial.confirms,
    Trial.step,
    Trial.config["num_steps"].as_integer(),
    Trial.value,
)
"""The columns of an `UnfinishedTrial`."""


class TrialColumnsRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def listed(self, job_id: str, numbers: Collection[int]) -> dict[int, ListedTrial]:
        """The trials of a job that have these numbers, by number."""
        if not numbers:
            return {}
        statement = select(
            Trial.number,
            Trial.phase,
            Trial.state,
            Trial.requested,
            Trial.reason,
            Trial.detail,
            Trial.parameters,
            Trial.confirms,
            Trial.forked_from,
            Trial.forked_at_step,
            Trial.proposed,
            Trial.step,
            Trial.seconds,
            Trial.value,
            Trial.config["optimizer"]["name"].as_string(),
            Trial.config["seed"].as_integer(),
            Trial.config["num_steps"].as_integer(),
        ).where(Trial.job_id == job_id, Trial.number.in_(list(numbers)))
        return {row[0]: ListedTrial(*row) for row in self._session.execute(statement)}

    def of_one_model(
        self, job_id: str, *, optimizer: str, fingerprint: str, batch_size: int, num_steps: int, limit: int
    ) -> TrialsOfModel:
        """The trials of one model in a job's search and baselines that trained to their end, diverged, or were pruned,
        with an optimizer, a batch size and a number of steps. Forks, which did not begin from nothing, are none of
        them."""
        measured = and_(
            Trial.state.in_((TrialState.COMPLETED, TrialState.PRUNED)),
            Trial.value.is_not(None),
            Trial.fingerprint == fingerprint,
        )
        # One that diverged at once was never measured, and has no fingerprint.
        diverged = and_(
            Trial.state == TrialState.FAILED,
            Trial.reason == FailureReason.DIVERGED,
            func.coalesce(Trial.fingerprint, fingerprint) == fingerprint,
        )
        value = case((Trial.state != TrialState.FAILED, Trial.value))
        statement = select(func.count().over(), Trial.id, Trial.state, Trial.step, value, Trial.config).where(
            Trial.job_id == job_id,
            Trial.phase != Phase.CONFIRMATION,
            Trial.forked_from.is_(None),
            Trial.config["optimizer"]["name"].as_string() == optimizer,
            Trial.config["batch_size"].as_integer() == batch_size,
            Trial.config["num_steps"].as_integer() == num_steps,
            or_(measured, diverged),
        )
        is_pruned = case((Trial.state == TrialState.PRUNED, 1), else_=0)
        rows = list(self._session.execute(statement.order_by(is_pruned, Trial.number.desc()).limit(limit)))
        return TrialsOfModel([TrialOfModel(*row[1:]) for row in rows], rows[0][0] if rows else 0)

    def training(self, job_id: str, *, limit: int) -> list[UnfinishedTrial]:
        """The trials of a job that are being trained, by number; the first `limit`."""
        running = select(*_UNFINISHED).where(Trial.job_id == job_id, Trial.state == TrialState.RUNNING)
        rows = self._session.execute(running.order_by(Trial.number).limit(limit))
        return [UnfinishedTrial(*row) for row in rows]

    def ahead(self, job_id: str, phase: Phase, direction: Direction) -> UnfinishedTrial | None:
        """The trial of a phase with the best value among those that have not ended; None: none was measured."""
        states = [state for state in TrialState if not state.is_final]
        measured = select(*_UNFINISHED).where(
            Trial.job_id == job_id, Trial.phase == phase, Trial.state.in_(states), Trial.value.is_not(None)
        )
        best = Trial.value.asc() if direction is Direction.MINIMIZE else Trial.value.desc()
        row = self._session.execute(measured.order_by(best, Trial.number).limit(1)).first()
        return None if row is None else UnfinishedTrial(*row)

    def remarked(self, job_id: str, *, among: int) -> Remark | None:
        """The remarks of the newest completed trial of the newest `among` on the data; None: nothing."""
        newest = select(Trial.number, Trial.state, Trial.detail).where(Trial.job_id == job_id)
        trials = newest.order_by(Trial.number.desc()).limit(among).subquery()
        told = select(trials.c.number, trials.c.detail).where(
            trials.c.state == TrialState.COMPLETED, trials.c.detail.is_not(None), trials.c.detail != ""
        )
        found = self._session.execute(told.order_by(trials.c.number.desc()).limit(1)).one_or_none()
        return None if found is None else Remark(*found)

    def drawn(self, job_id: str, *, first: int = 0) -> DrawnTrials:
        """The trials of a job from a number on, by number, with all of their parameters."""
        texts = (type_coerce(column, String) for column in (Trial.phase, Trial.state, Trial.reason))
        statement = (
            select(Trial.number, *texts, Trial.value, cast(Trial.parameters, String))
            .where(Trial.job_id == job_id, Trial.number >= first)
            .order_by(Trial.number)
        )
        rows = self._session.execute(statement).all()
        numbers, phases, states, reasons, values, parameters = zip(*rows, strict=True) if rows else ((),) * 6
        return DrawnTrials(
            numbers=list(numbers),
            phases=[_PHASES[text] for text in phases],
            states=[_STATES[text] for text in states],
            reasons=[None if text is None else FailureReason(text) for text in reasons],
            values=list(values),
            parameters=json.loads(f"[{','.join(parameters)}]"),
        )

    def num_unfinished_before(self, job_id: str, number: int) -> int:
        """The number of trials with a lower number that have not ended."""
        states = [state for state in TrialState if not state.is_final]
        statement = select(func.count()).where(Trial.job_id == job_id, Trial.state.in_(states), Trial.number < number)
        return self._session.scalars(statement).one()

    def parameters(self, job_id: str, numbers: Sequence[int]) -> dict[int, dict[str, Any]]:
        """The sampled values of some trials of a job, by number and then by parameter."""
        statement = select(Trial.number, Trial.parameters).where(Trial.job_id == job_id, Trial.number.in_(numbers))
        return {row[0]: row[1] for row in self._session.execute(statement)}

    def outcomes(
        self, job_id: str
    ) -> list[tuple[int, Phase, TrialState, FailureReason | None, float | None, str | None]]:
        """Number, phase, state, reason and value of the trials of a job that have ended, in the order in which they
        did; and of those that diverged, the detail."""
        detail = case((Trial.reason == FailureReason.DIVERGED, Trial.detail))
        statement = select(Trial.number, Trial.phase, Trial.state, Trial.reason, Trial.value, detail).where(
            Trial.job_id == job_id, Trial.finished_at.is_not(None)
        )
        rows = self._session.execute(statement.order_by(Trial.finished_at, Trial.number))
        return [(number, phase, state, reason, value, told) for number, phase, state, reason, value, told in rows]

    def ended(self, job_id: str) -> list[TrialSpending]:
        """The trials of a job that have ended, in that order."""
        statement = select(Trial.phase, Trial.state, Trial.value, Trial.spent_seconds, Trial.finished_at).where(
            Trial.job_id == job_id, Trial.state.in_([state for state in TrialState if state.is_final])
        )
        found = self._session.execute(statement.order_by(Trial.finished_at, Trial.number))
        return [
            TrialSpending(phase, state, value, spent_seconds, finished_at)
            for phase, state, value, spent_seconds, finished_at in found
            if finished_at is not None
        ]
