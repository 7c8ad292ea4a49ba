"""A database with as many jobs, trials and measurements as one has after long use, written in bulk."""

from __future__ import annotations

import random
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import func, insert, literal, select, update

from service.domain import JobState, Phase, TrialState
from service.store.migrate import migrate
from service.store.models import Job, MeasurementRow, Trial
from service.store.repositories import MeasurementRepository
from service.store.session import Database
from tests.support.service.scenarios import NOW, add_worker, store_trials, submit

ENDINGS = (TrialState.COMPLETED, TrialState.COMPLETED, TrialState.COMPLETED, TrialState.PRUNED, TrialState.FAILED)
METRICS = ("validation_loss", "validation_accuracy", "train_loss", "tokens_per_second")
FURTHER_OBJECTIVES = ("step_seconds", "peak_memory_bytes", "optimizer_state_bytes")


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of a filled database."""

    jobs: int
    trials: int
    """Trials of each job; a quarter of them are the baseline's."""
    measurements: int
    """Measurements of each trial."""
    running: int = 0
    """Jobs that are running."""
    objectives: int = 1
    """Objectives of each job, up to 4."""

    def __post_init__(self) -> None:
        largest = 1 + len(FURTHER_OBJECTIVES)
        if not 1 <= self.objectives <= largest:
            raise ValueError(f"objectives must be from 1 to {largest}, got {self.objectives}")


def job_ids_of(url: str, sizes: Sizes) -> list[str]:
    """The ids of the jobs of a database, which is filled unless it is already.

    Raises:
        ValueError: it was filled with other numbers of jobs, trials or measurements.
    """
    with closing(Database(url)) as database:
        migrate(database)
        with database.reading() as session:
            ids = list(session.scalars(select(Job.id).order_by(Job.id)))
            first = select(Trial.id).where(Trial.job_id.in_(ids[-1:]))
            found = (
                len(ids),
                session.scalar(select(func.count()).select_from(first.subquery())),
                session.scalar(select(func.count()).where(MeasurementRow.trial_id == first.limit(1).scalar_subquery())),
            )
        if not ids:
            return fill(database, sizes)
        if found != (sizes.jobs, sizes.trials, sizes.measurements):
            raise ValueError(f"the database has {found} jobs, trials of each and measurements of each, not {sizes}")
        return ids


def fill(database: Database, sizes: Sizes) -> list[str]:
    """Migrates the database and stores jobs that have ended, and some that run; their ids."""
    migrate(database)
    generator = random.Random(0)
    objectives = ["validation_loss", *FURTHER_OBJECTIVES[: sizes.objectives - 1]]
    worker_id = add_worker(database)
    job_ids = []
    for index in range(sizes.jobs):
        job_id = submit(
            database, budget={"num_trials": sizes.trials}, objectives=[{"metric": metric} for metric in objectives]
        )
        job_ids.append(job_id)
        store_trials(database, job_id, [_trial(number, objectives, generator) for number in range(sizes.trials)])
        if sizes.measurements:
            _measure(database, job_id, sizes.measurements)
        runs = index < sizes.running
        job_state = JobState.RUNNING if runs else JobState.SUCCEEDED
        times = {"started_at": NOW, "running_since": NOW if runs else None, "waiting_since": None}
        lease = {"lease_worker_id": worker_id, "lease_expires_at": NOW} if runs else {}
        ended = {} if runs else {"finished_at": NOW + timedelta(hours=1)}
        with database.writing() as session:
            session.execute(update(Job).where(Job.id == job_id).values(state=job_state, **times, **lease, **ended))
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("ANALYZE")  # as a server does by itself in time
    return job_ids


def _trial(number: int, objectives: list[str], generator: random.Random) -> dict[str, Any]:
    metrics = {name: generator.random() for name in (*METRICS, *objectives[1:])}
    phase = Phase.BASELINE if number % 4 == 3 else Phase.SEARCH
    state = generator.choice(ENDINGS)
    return {"phase": phase, "state": state, "value": metrics["validation_loss"], "metrics": metrics}


def _measure(database: Database, job_id: str, count: int) -> None:
    """The same measurements for each trial of the job: those of the first are stored one by one, the others copied."""
    with database.writing() as session:
        repository = MeasurementRepository(session)
        trials = select(Trial.id).where(Trial.job_id == job_id).order_by(Trial.number)
        first = session.scalars(trials.limit(1)).one()
        for index in range(count):
            step = 10 * (index + 1)
            metrics = {name: 1 / (step + place) for place, name in enumerate(METRICS)}
            repository.put(first, step=step, epoch=step / 100, seconds=0.1 * step, metrics=metrics, recorded_at=NOW)
        session.flush()
        columns = [column for column in MeasurementRow.__table__.columns if column.name != "trial_id"]
        copied = select(Trial.id, *columns).join_from(Trial, MeasurementRow, literal(value=True))
        session.execute(
            insert(MeasurementRow).from_select(
                ["trial_id", *(column.name for column in columns)],
                copied.where(MeasurementRow.trial_id == first, Trial.job_id == job_id, Trial.id != first),
            )
        )
