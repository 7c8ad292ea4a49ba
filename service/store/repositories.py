"""Every SQL statement the service runs, one repository per table. They never commit and never decide."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    ScalarSelect,
    Select,
    and_,
    case,
    delete,
    func,
    or_,
    select,
    text,
    union_all,
    update,
)
from sqlalchemy.orm import Session, aliased, selectinload

from service.domain import Direction, JobState, Phase, TrialRequest, TrialState
from service.errors import NotFound
from service.store.models import ClusterShare, Event, Job, MeasurementRow, RecommendationRow, Trial, Worker

# Any constant: the key of the lock under which PostgreSQL writes events.
_EVENT_ORDER_LOCK = 7_305_112


@dataclass(frozen=True, slots=True)
class TrialSummary:
    """The number of trials of one job and phase in one state, and the time they trained."""

    job_id: str
    phase: Phase
    state: TrialState
    count: int
    spent_seconds: float


@dataclass(frozen=True, slots=True)
class LeadingTrial:
    """The completed trial of a job and phase with the best value; the earliest of equals."""

    job_id: str
    phase: Phase
    number: int
    value: float


@dataclass(frozen=True, slots=True)
class CompletedTrial:
    """The last measurement of a completed trial."""

    job_id: str
    number: int
    phase: Phase
    metrics: dict[str, float | None]


@dataclass(frozen=True, slots=True)
class TrainedTrial:
    """A trial that has ended: how often it ran, and from when to when."""

    job_id: str
    number: int
    runs: int
    started_at: datetime
    finished_at: datetime


class JobRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, job: Job) -> None:
        self._session.add(job)
        self._session.flush()

    def get(self, job_id: str) -> Job:
        """Raises: NotFound."""
        job = self._session.get(Job, job_id)
        if job is None:
            raise NotFound("job", job_id)
        return job

    def get_locked(self, job_id: str) -> Job:
        """The job, locked against other writers until the transaction ends, with its newest values.

        Raises:
            NotFound: no such job.
        """
        statement = select(Job).where(Job.id == job_id).with_for_update().execution_options(populate_existing=True)
        job = self._session.scalars(statement).one_or_none()
        if job is None:
            raise NotFound("job", job_id)
        return job

    def find_by_idempotency_key(self, key: str) -> Job | None:
        """The job a key made. Until the transaction ends, another writer that asks for the same key waits."""
        if self._session.get_bind().dialect.name == "postgresql":
            # Two requests at once would both find nothing, and the second insert would fail.
            self._session.execute(text("SELECT pg_advisory_xact_lock(hashtextextended(:key, 0))"), {"key": key})
        return self._session.scalars(select(Job).where(Job.idempotency_key == key)).one_or_none()

    def page(
        self, *, states: Sequence[JobState] = (), model: str | None = None, before_id: str | None = None, limit: int
    ) -> list[Job]:
        """Up to `limit` jobs, newest first, beginning after the job `before_id`."""
        statement = select(Job).order_by(Job.id.desc()).limit(limit)
        if states:
            statement = statement.where(Job.state.in_(states))
        if model is not None:
            statement = statement.where(Job.model == model)
        if before_id is not None:
            statement = statement.where(Job.id < before_id)
        return list(self._session.scalars(statement))

    def next_claimable_locked(self, now: datetime) -> Job | None:
        """The first job, by priority and then age, that waits for a worker or whose worker let its lease expire.

        It is locked. None: there is none.
        """
        statement = (
            select(Job)
            .where(
                or_(Job.not_before.is_(None), Job.not_before <= now),
                or_(
                    Job.state == JobState.QUEUED,
                    and_(Job.state == JobState.RUNNING, Job.lease_expires_at < now),
                ),
            )
            .order_by(Job.priority.desc(), Job.created_at, Job.id)
            .limit(1)
            .with_for_update(skip_locked=True)
        )
        return self._session.scalars(statement).one_or_none()

    def queued_ids(self) -> list[str]:
        """The jobs that wait for a worker, in the order in which they are claimed."""
        statement = select(Job.id).where(Job.state == JobState.QUEUED)
        return list(self._session.scalars(statement.order_by(Job.priority.desc(), Job.created_at, Job.id)))

    def num_leased(self, now: datetime) -> int:
        """The running jobs whose leases hold."""
        statement = select(func.count()).where(Job.state == JobState.RUNNING, Job.lease_expires_at >= now)
        return self._session.scalar(statement) or 0

    def leased_to(self, worker_id: str) -> list[Job]:
        """The running jobs whose leases `worker_id` holds."""
        statement = select(Job).where(Job.lease_worker_id == worker_id, Job.state == JobState.RUNNING)
        return list(self._session.scalars(statement.order_by(Job.id)))

    def renew_leases(self, worker_id: str, expires_at: datetime) -> None:
        """Moves the expiry of every lease that `worker_id` holds on a running job."""
        self._session.execute(
            update(Job)
            .where(Job.lease_worker_id == worker_id, Job.state == JobState.RUNNING)
            .values(lease_expires_at=expires_at)
        )

    def set_disk_bytes(self, job_id: str, num_bytes: int) -> None:
        self._session.execute(update(Job).where(Job.id == job_id).values(disk_bytes=num_bytes))


class ClusterShareRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def put(self, share: ClusterShare) -> None:
        """Stores what a job's run has, in place of what it had."""
        self._session.merge(share)
        self._session.flush()

    def of_cluster(self, cluster: str, *, now: datetime) -> list[tuple[ClusterShare, int]]:
        """The shares that living runs have of a cluster, each with its job's priority."""
        statement = (
            select(ClusterShare, Job.priority)
            .join(Job, and_(Job.id == ClusterShare.job_id, Job.attempt == ClusterShare.attempt))
            .where(ClusterShare.cluster == cluster, Job.state == JobState.RUNNING, Job.lease_expires_at >= now)
            .order_by(ClusterShare.job_id)
        )
        return [(share, priority) for share, priority in self._session.execute(statement)]


class TrialRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, trial: Trial) -> None:
        self._session.add(trial)
        self._session.flush()

    def find(self, job_id: str, number: int) -> Trial | None:
        statement = select(Trial).where(Trial.job_id == job_id, Trial.number == number)
        return self._session.scalars(statement).one_or_none()

    def get(self, job_id: str, number: int) -> Trial:
        """Raises: NotFound."""
        trial = self.find(job_id, number)
        if trial is None:
            raise NotFound("trial", f"{job_id}/{number}")
        return trial

    def find_by_idempotency_key(self, job_id: str, key: str) -> Trial | None:
        """The trial of a locked job that a key proposed."""
        statement = select(Trial).where(Trial.job_id == job_id, Trial.idempotency_key == key)
        return self._session.scalars(statement).one_or_none()

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

    def newest(self, job_id: str, *, limit: int, always: Collection[int] = ()) -> list[Trial]:
        """The newest `limit` trials of a job and those with the numbers `always`, by number."""
        own = select(Trial).where(Trial.job_id == job_id)
        found = list(self._session.scalars(own.order_by(Trial.number.desc()).limit(limit)))
        missing = set(always) - {trial.number for trial in found}
        if missing:
            found += self._session.scalars(own.where(Trial.number.in_(list(missing))))
        return sorted(found, key=lambda trial: trial.number)

    def phases(self, job_id: str, numbers: Collection[int]) -> dict[int, Phase]:
        """The phase of each of these trials, by number."""
        if not numbers:
            return {}
        statement = select(Trial.number, Trial.phase).where(Trial.job_id == job_id, Trial.number.in_(list(numbers)))
        return {row.number: row.phase for row in self._session.execute(statement)}

    def with_measurements(self, job_id: str) -> list[Trial]:
        """Every trial of a job by number, with its measurements loaded."""
        statement = (
            select(Trial)
            .where(Trial.job_id == job_id)
            .order_by(Trial.number)
            .options(selectinload(Trial.measurements))
            .execution_options(populate_existing=True)
        )
        return list(self._session.scalars(statement))

    def summaries(self, job_ids: Iterable[str]) -> list[TrialSummary]:
        """Trial counts of these jobs by phase and state, and the training time of those trials."""
        statement = (
            select(Trial.job_id, Trial.phase, Trial.state, func.count(), func.sum(Trial.spent_seconds))
            .where(Trial.job_id.in_(list(job_ids)))
            .group_by(Trial.job_id, Trial.phase, Trial.state)
        )
        return [TrialSummary(*row) for row in self._session.execute(statement)]

    def spent_seconds(self, job_id: str) -> float:
        """The training time of all trials of a job."""
        statement = select(func.coalesce(func.sum(Trial.spent_seconds), 0.0)).where(Trial.job_id == job_id)
        return self._session.scalar(statement) or 0.0

    def numbers_to_stop(self, job_id: str) -> list[int]:
        """The trials of a job that are asked to stop."""
        # "IS NOT NULL" is what the index is for.
        asked = select(Trial.number).where(Trial.job_id == job_id, Trial.requested.is_not(None))
        return list(self._session.scalars(asked.where(Trial.requested == TrialRequest.STOP)))

    def last_finished(self, job_ids: Iterable[str], *, limit: int) -> list[TrainedTrial]:
        """Up to `limit` trials of each of these jobs that were started and have ended, a job's last one first."""
        place = func.row_number().over(
            partition_by=Trial.job_id, order_by=(Trial.finished_at.desc(), Trial.number.desc())
        )
        ranked = (
            select(Trial.job_id, Trial.number, Trial.runs, Trial.started_at, Trial.finished_at, place.label("place"))
            .where(Trial.job_id.in_(list(job_ids)), Trial.started_at.is_not(None), Trial.finished_at.is_not(None))
            .subquery()
        )
        columns = (getattr(ranked.c, name) for name in ("job_id", "number", "runs", "started_at", "finished_at"))
        statement = select(*columns).where(ranked.c.place <= limit).order_by(ranked.c.job_id, ranked.c.place)
        return [TrainedTrial(*row) for row in self._session.execute(statement)]

    def leading(self, job_ids: Iterable[str]) -> list[LeadingTrial]:
        """The best trial of each phase of these jobs, in the direction of the job's objective.

        A stored value is a number or missing: what is not finite is stored as missing. Each lookup is the first or the
        last entry of a stretch of the index, however many trials there are.
        """
        ids = list(job_ids)
        found = union_all(
            *(select(_leading_id(phase).label("id")).where(Job.id.in_(ids)) for phase in (Phase.SEARCH, Phase.BASELINE))
        ).subquery()
        statement = select(Trial.job_id, Trial.phase, Trial.number, Trial.value).join(found, Trial.id == found.c.id)
        rows = self._session.execute(statement)
        return [
            LeadingTrial(job_id, phase, number, value) for job_id, phase, number, value in rows if value is not None
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


class MeasurementRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def put(self, measurement: MeasurementRow) -> float | None:
        """Adds a measurement, or replaces the one of the same step (a resumed trial measures a step again).

        Returns the `seconds` of the one replaced; None: the step was not measured before.
        """
        earlier = self._session.get(MeasurementRow, (measurement.trial_id, measurement.step))
        replaced = None if earlier is None else earlier.seconds
        self._session.merge(measurement)
        return replaced

    def find(self, trial_id: str, step: int) -> MeasurementRow | None:
        return self._session.get(MeasurementRow, (trial_id, step))

    def of_trial(
        self, trial_id: str, *, after_step: int | None = None, limit: int | None = None
    ) -> list[MeasurementRow]:
        statement: Select[Any] = select(MeasurementRow).where(MeasurementRow.trial_id == trial_id)
        if after_step is not None:
            statement = statement.where(MeasurementRow.step > after_step)
        return list(self._session.scalars(statement.order_by(MeasurementRow.step).limit(limit)))

    def of_trials(self, trial_ids: Sequence[str]) -> list[MeasurementRow]:
        """The measurements of these trials, each trial's in order of steps."""
        statement = select(MeasurementRow).where(MeasurementRow.trial_id.in_(trial_ids))
        return list(self._session.scalars(statement.order_by(MeasurementRow.trial_id, MeasurementRow.step)))


class EventRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, job_id: str, kind: str, data: dict[str, Any], now: datetime) -> None:
        """Appends an event. Ids grow in commit order, so that a reader who saw id n has seen all before it.

        PostgreSQL draws an id when the row is inserted, not when it is committed: without the lock, held until the
        commit, a reader could see id 8 before 7 exists and never look back. SQLite has one writer anyway.
        """
        if self._session.get_bind().dialect.name == "postgresql":
            self._session.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _EVENT_ORDER_LOCK})
        self._session.add(Event(job_id=job_id, kind=kind, data=data, created_at=now))
        self._session.flush()

    def after(self, last_id: int, *, job_id: str | None = None, limit: int) -> list[Event]:
        """Up to `limit` events with an id above `last_id`, oldest first."""
        statement = select(Event).where(Event.id > last_id).order_by(Event.id).limit(limit)
        if job_id is not None:
            statement = statement.where(Event.job_id == job_id)
        return list(self._session.scalars(statement))

    def last_id(self) -> int:
        """The newest event's id; 0: there is none."""
        return self._session.scalar(select(func.coalesce(func.max(Event.id), 0))) or 0


class RecommendationRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def replace(self, recommendation: RecommendationRow) -> None:
        """Stores the recommendation of a job in place of an earlier one."""
        self._session.execute(delete(RecommendationRow).where(RecommendationRow.job_id == recommendation.job_id))
        self._session.add(recommendation)
        self._session.flush()

    def of_job(self, job_id: str) -> RecommendationRow | None:
        return self._session.scalars(select(RecommendationRow).where(RecommendationRow.job_id == job_id)).one_or_none()

    def of_jobs(self, job_ids: Sequence[str]) -> list[RecommendationRow]:
        """The recommendations of these jobs."""
        return list(self._session.scalars(select(RecommendationRow).where(RecommendationRow.job_id.in_(job_ids))))

    def of_model(self, model: str, *, limit: int) -> list[RecommendationRow]:
        """Recommendations for a model, newest first."""
        statement = select(RecommendationRow).where(RecommendationRow.model == model)
        return list(self._session.scalars(statement.order_by(RecommendationRow.id.desc()).limit(limit)))


class WorkerRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, worker: Worker) -> None:
        self._session.add(worker)
        self._session.flush()

    def beat(self, worker_id: str, now: datetime) -> None:
        self._session.execute(update(Worker).where(Worker.id == worker_id).values(heartbeat_at=now))

    def alive_since(self, moment: datetime) -> int:
        """Workers heard of since `moment`."""
        return self._session.scalar(select(func.count()).where(Worker.heartbeat_at >= moment)) or 0

    def last_heartbeat(self) -> datetime | None:
        """The time at which a worker was last heard of; None: there was never one."""
        return self._session.scalars(select(Worker.heartbeat_at).order_by(Worker.heartbeat_at.desc()).limit(1)).first()
