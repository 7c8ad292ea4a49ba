"""Insights into the hyperparameters of jobs, as a job's run last found them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from service.domain import FailureReason, Phase, TrialState
from service.store.models import JobInsightsRow, Trial
from trainers.identity.values import Environment

_FINAL = [state for state in TrialState if state.is_final]


@dataclass(frozen=True, slots=True)
class EndedTrialRow:
    """A trial of a search or a baseline that has ended, as insights are made from it."""

    id: str
    number: int
    phase: Phase
    optimizer: str
    state: TrialState
    reason: FailureReason | None
    parameters: dict[str, Any]
    value: float | None
    step: int
    num_steps: int
    """Steps of the trial if it had gone to its end."""
    seconds: float
    is_fork: bool
    fingerprint: str | None
    environment: dict[str, Any] | None
    """An `Environment` as JSON."""
    state_bytes: float | None
    """Memory of the optimizer's state, on the rank with most."""

    @property
    def stored_environment(self) -> Environment | None:
        """The environment as readers have it."""
        return None if self.environment is None else Environment.from_json(self.environment)


class InsightsRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def of_job(self, job_id: str) -> JobInsightsRow | None:
        return self._session.get(JobInsightsRow, job_id)

    def put(self, job_id: str, content: Mapping[str, Any], *, now: datetime) -> None:
        """Stores what was found of a job in place of what was found before."""
        row = self.of_job(job_id)
        if row is None:
            self._session.add(JobInsightsRow(job_id=job_id, content=dict(content), computed_at=now))
        else:
            row.content, row.computed_at = dict(content), now
        self._session.flush()

    def num_ended(self, job_id: str) -> int:
        """The trials of search and baselines of a job that have ended."""
        return self._session.scalar(select(func.count()).where(*_ended(job_id))) or 0

    def ended(self, job_id: str) -> list[EndedTrialRow]:
        """The trials of search and baselines of a job that have ended, by number."""
        statement = select(
            Trial.id,
            Trial.number,
            Trial.phase,
            Trial.config["optimizer"]["name"].as_string(),
            Trial.state,
            Trial.reason,
            Trial.parameters,
            Trial.value,
            Trial.step,
            Trial.config["num_steps"].as_integer(),
            Trial.seconds,
            Trial.forked_from.is_not(None),
            Trial.fingerprint,
            Trial.environment,
            Trial.metrics["optimizer_state_bytes"].as_float(),
        ).where(*_ended(job_id))
        return [EndedTrialRow(*row) for row in self._session.execute(statement.order_by(Trial.number))]

    def confirmed(self, job_id: str) -> dict[int, dict[int, float | None]]:
        """The values of each config that was trained again, by the number of its trial and by new seed; None: it
        failed."""
        found: dict[int, dict[int, float | None]] = {}
        seed = Trial.config["seed"].as_integer()
        statement = select(Trial.confirms, seed, Trial.state, Trial.value).where(
            Trial.job_id == job_id,
            Trial.phase == Phase.CONFIRMATION,
            Trial.state.in_((TrialState.COMPLETED, TrialState.FAILED)),
        )
        for number, seed_of, state, value in self._session.execute(statement.order_by(Trial.number)):
            if number is not None:
                found.setdefault(number, {})[seed_of] = value if state is TrialState.COMPLETED else None
        return found


def _ended(job_id: str) -> tuple[ColumnElement[bool], ...]:
    return Trial.job_id == job_id, Trial.phase != Phase.CONFIRMATION, Trial.state.in_(_FINAL)
