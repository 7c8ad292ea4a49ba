"""Figures of the whole service for its operator, each at a cost that is bounded or read seldom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from service.domain import JobState, Phase, TrialState
from service.store.models import Job, MeasurementRow, Trial
from service.store.repositories.cluster import is_alive_since
from service.store.repositories.deletions import DeletionRepository

NEWEST = 500
"""Jobs, and trials, that times are taken from."""


@dataclass(frozen=True, slots=True)
class TrialCount:
    """The number of trials of all jobs in one phase and state."""

    phase: Phase
    state: TrialState
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationFigures:
    """The state of the service, as its rows tell it."""

    jobs: dict[JobState, int]
    trials: Sequence[TrialCount]
    workers_alive: int
    oldest_queued_at: datetime | None
    """The time at which the job was submitted that has been in the queue for longest; None: the queue is empty."""
    queue_seconds: Sequence[float]
    """Times from submission to the first run, of the newest jobs that have run; ascending."""
    trial_start_seconds: Sequence[float]
    """Times from the order to train until the first step, of the newest trials that were measured; ascending. The
    evaluation before the first measurement counts, too."""
    rank_seconds: float
    """Training of all trials, times the ranks of each; of deleted jobs, too."""
    ranks_in_trials: int
    """Ranks of the trials that are running."""


class OperationRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def figures(self, *, alive_since: datetime) -> OperationFigures:
        """The figures now. Reads one index of trials, and the jobs, from end to end.

        Args:
            alive_since: a worker that was heard of since then is alive.
        """
        by_state = select(Job.state, func.count()).where(Job.deleted_at.is_(None)).group_by(Job.state)
        by_phase = select(Trial.phase, Trial.state, func.count()).group_by(Trial.phase, Trial.state)
        alive = select(func.count()).where(is_alive_since(alive_since))
        oldest = select(func.min(Job.created_at)).where(Job.state == JobState.QUEUED)
        rank_seconds, ranks_in_trials = self._ranks()
        return OperationFigures(
            jobs={row[0]: row[1] for row in self._session.execute(by_state)},
            trials=[TrialCount(*row) for row in self._session.execute(by_phase)],
            workers_alive=self._session.scalar(alive) or 0,
            oldest_queued_at=self._session.scalar(oldest),
            queue_seconds=self._queue_seconds(),
            trial_start_seconds=self._trial_start_seconds(),
            rank_seconds=rank_seconds,
            ranks_in_trials=ranks_in_trials,
        )

    def _queue_seconds(self) -> list[float]:
        newest = select(Job.created_at, Job.started_at).order_by(Job.id.desc()).limit(NEWEST)
        return sorted(
            (started - created).total_seconds() for created, started in self._session.execute(newest) if started
        )

    def _trial_start_seconds(self) -> list[float]:
        newest = (
            select(Trial.id, Trial.started_at)
            .where(Trial.forked_from.is_(None), Trial.started_at.is_not(None), Trial.step > 0)
            .order_by(Trial.id.desc())
            .limit(NEWEST)
            .subquery()
        )
        first = select(func.min(MeasurementRow.step)).where(MeasurementRow.trial_id == newest.c.id)
        statement = select(newest.c.started_at, MeasurementRow.recorded_at, MeasurementRow.seconds).join(
            MeasurementRow,
            (MeasurementRow.trial_id == newest.c.id)
            & (MeasurementRow.step == first.correlate(newest).scalar_subquery()),
        )
        return sorted(
            max(0.0, (recorded - started).total_seconds() - seconds)
            for started, recorded, seconds in self._session.execute(statement)
        )

    def _ranks(self) -> tuple[float, int]:
        """The rank seconds trained, and the ranks that belong to a running trial now."""
        ranks = func.coalesce(Job.stored_specification["resources"]["workers_per_trial"].as_integer(), 1)
        by_job = select(Trial.job_id, func.sum(Trial.spent_seconds).label("seconds")).group_by(Trial.job_id).subquery()
        there = Job.deleted_at.is_(None)
        spent = select(func.sum(by_job.c.seconds * ranks)).select_from(by_job).join(Job, Job.id == by_job.c.job_id)
        running = (
            select(func.sum(ranks))
            .select_from(Trial)
            .join(Job, Job.id == Trial.job_id)
            .where(Job.state == JobState.RUNNING, Trial.state == TrialState.RUNNING)
        )
        of_deleted = DeletionRepository(self._session).rank_seconds(None)
        trained = float(self._session.scalar(spent.where(there)) or 0.0) + of_deleted
        return trained, int(self._session.scalar(running) or 0)
