"""Trials as tables and charts show them: columns, not entities, which take several times as long by the thousand."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from service.domain import FailureReason, Phase, TrialRequest, TrialState
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
    """If it goes to its end."""


@dataclass(frozen=True, slots=True)
class EndedTrial:
    """A trial that has ended, as a chart of what was spent needs it."""

    phase: Phase
    state: TrialState
    value: float | None
    spent_seconds: float
    """Training time in all its runs."""
    finished_at: datetime


class TrialColumnsRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def newest(self, job_id: str, *, limit: int, always: Collection[int] = ()) -> list[ListedTrial]:
        """The newest `limit` trials of a job and those with the numbers `always`, by number."""
        own = select(
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
        ).where(Trial.job_id == job_id)
        rows = list(self._session.execute(own.order_by(Trial.number.desc()).limit(limit)))
        missing = set(always) - {row[0] for row in rows}
        if missing:
            rows += self._session.execute(own.where(Trial.number.in_(list(missing))))
        return sorted((ListedTrial(*row) for row in rows), key=lambda trial: trial.number)

    def parameters(self, job_id: str, numbers: Sequence[int]) -> dict[int, dict[str, Any]]:
        """The sampled values of some trials of a job, by number and then by parameter."""
        statement = select(Trial.number, Trial.parameters).where(Trial.job_id == job_id, Trial.number.in_(numbers))
        return {row[0]: row[1] for row in self._session.execute(statement)}

    def outcomes(self, job_id: str) -> list[tuple[int, Phase, TrialState, FailureReason | None, float | None]]:
        """Number, phase, state, reason and value of the trials of a job that have ended, in the order in which they
        did."""
        statement = select(Trial.number, Trial.phase, Trial.state, Trial.reason, Trial.value).where(
            Trial.job_id == job_id, Trial.finished_at.is_not(None)
        )
        rows = self._session.execute(statement.order_by(Trial.finished_at, Trial.number))
        return [(number, phase, state, reason, value) for number, phase, state, reason, value in rows]

    def ended(self, job_id: str) -> list[EndedTrial]:
        """The trials of a job that have ended, in that order."""
        statement = select(Trial.phase, Trial.state, Trial.value, Trial.spent_seconds, Trial.finished_at).where(
            Trial.job_id == job_id, Trial.state.in_([state for state in TrialState if state.is_final])
        )
        found = self._session.execute(statement.order_by(Trial.finished_at, Trial.number))
        return [
            EndedTrial(phase, state, value, spent_seconds, finished_at)
            for phase, state, value, spent_seconds, finished_at in found
            if finished_at is not None
        ]
