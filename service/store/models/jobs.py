"""The tables of jobs, of their trials and of measurements, which refer to each other, and of deleted jobs."""

from __future__ import annotations

import marshal
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, String, Text, UniqueConstraint, false, text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from service.domain import (
    DEFAULT_PROJECT,
    CancelCause,
    Direction,
    FailureReason,
    JobRequest,
    JobState,
    Objective,
    Phase,
    TrialRequest,
    TrialState,
)
from service.specification.job import JobSpecification
from service.specification.price import Price
from service.store.models.base import Base
from service.store.packing import unpack
from trainers.identity.values import Environment
from trainers.stored_config import StoredConfig

MAX_REMEMBERED_BYTES = 20_000
"""Most bytes of a specification that is kept parsed: most have about a thousand."""
_WITHOUT_REFERENCES = 2
"""The version of `marshal` that gives equal bytes for equal content; it takes a fifth of the time that JSON takes."""


def _parse(content: bytes) -> JobSpecification:
    return JobSpecification.model_validate(marshal.loads(content))


_parsed = lru_cache(maxsize=1000)(_parse)
"""Specifications as parsed before: that takes as long as all else that a list needs of a job. They are immutable."""

_PARSED = "_parsed_specification"
"""The attribute of a job that keeps its parsed specification, beside the JSON that it was parsed from."""


class Job(Base):
    """A job that a user submitted, and its progress."""

    __tablename__ = "jobs"
    # None begins with a model or a state and goes on with the id: of a frequent one, a list walks the key backwards
    # until its page is full, and of a rare one it sorts the few that the index of it alone finds.
    __table_args__ = (
        Index("ix_jobs_state_created_at", "state", "created_at"),
        Index("ix_jobs_project_id", "project", "id"),
        # Holds all that a project's quotas ask of its jobs.
        Index("ix_jobs_project_state_spent_device_seconds", "project", "state", "spent_device_seconds"),
        # Nearly empty: workers look often whether there is one to remove.
        Index(
            "ix_jobs_deleted_at",
            "deleted_at",
            sqlite_where=text("deleted_at IS NOT NULL"),
            postgresql_where=text("deleted_at IS NOT NULL"),
        ),
        # Of few jobs: what asks is whether any has some code.
        Index(
            "ix_jobs_code_sha256",
            "code_sha256",
            sqlite_where=text("code_sha256 IS NOT NULL"),
            postgresql_where=text("code_sha256 IS NOT NULL"),
        ),
    )

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    name: Mapped[str] = mapped_column(String(200))
    project: Mapped[str] = mapped_column(String(64), server_default=DEFAULT_PROJECT)
    """Its name; who is of another project sees nothing of the job."""
    owner: Mapped[str | None] = mapped_column(String(100))
    """The name of the token that submitted it; None: nobody had to say who asks."""
    tags: Mapped[dict[str, Any]]
    notes: Mapped[str | None] = mapped_column(Text())
    """A user's own text, shown as it stands."""
    cloned_from: Mapped[str | None] = mapped_column(String(40))
    """The id of the job whose specification it was made from, which may be deleted since."""
    archived_at: Mapped[datetime | None]
    """The time at which it was put away: lists leave it out."""
    deleted_at: Mapped[datetime | None]
    """The time at which it was deleted: to users it is not there any more, and a worker removes it."""
    priority: Mapped[int] = mapped_column(default=0)
    """Higher goes first, in the queue and on a cluster that jobs share."""
    state: Mapped[JobState]
    failure: Mapped[str | None]
    """The reason why the job failed, for a person."""
    cut_off: Mapped[str | None]
    """The reason why it ended before its trials had, for a person; None: it did not."""
    stored_specification: Mapped[dict[str, Any]] = mapped_column("specification")
    """The specification as JSON; `specification` is what it says."""
    workload: Mapped[str] = mapped_column(String(200), index=True)
    """Its name."""
    model: Mapped[str | None] = mapped_column(String(200), index=True)
    """The user's own name of the model."""
    stored_objectives: Mapped[list[Any]] = mapped_column("objectives", server_default="[]")
    """The objectives as JSON; `objectives` is what it says."""
    parameter_groups: Mapped[list[Any] | None]
    """Each `trainers.workload.description.ParameterGroup` of the workload; None: the job is older than this column."""
    num_trials: Mapped[int]
    num_steps: Mapped[int]
    idempotency_key: Mapped[str | None] = mapped_column(String(255), unique=True)
    """A digest of the project and the key of the request that made it."""
    request_digest: Mapped[str | None] = mapped_column(String(64))
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    """The time at which it first ran."""
    finished_at: Mapped[datetime | None]
    reopened_at: Mapped[datetime | None]
    """The time at which a user last had it go on after its end; errors before that are taken as mended."""
    reopened_from: Mapped[JobState | None]
    """The state that it had then; None: it has ended since, or for the first time not yet."""
    running_seconds: Mapped[float] = mapped_column(default=0.0)
    """Spent in state running, up to `running_since`."""
    running_since: Mapped[datetime | None]
    """The time since when it runs; None: it does not."""
    spent_device_seconds: Mapped[float] = mapped_column(server_default="0", default=0.0)
    """Training time of its trials, times the ranks of each, when it last left state running."""
    is_external: Mapped[bool] = mapped_column(default=False, server_default=false())
    """True if others train its trials: its run holds no device."""
    names_code: Mapped[bool] = mapped_column(default=False, server_default=false())
    """True if its workload or its sampler is code of a user, which only some workers run."""
    code_sha256: Mapped[str | None] = mapped_column(String(64))
    """The digest of the code that it came with, which is kept while it is there; None: it has none."""
    requested: Mapped[JobRequest | None]
    """The request for which its run is to end; None: there is none."""
    lease_worker_id: Mapped[str | None] = mapped_column(ForeignKey("workers.id"))
    lease_expires_at: Mapped[datetime | None]
    attempt: Mapped[int] = mapped_column(default=0)
    """Claims so far; fences the writes of an earlier claim."""
    crashes: Mapped[int] = mapped_column(default=0)
    """Runs in a row that died without getting any further."""
    not_before: Mapped[datetime | None]
    """A crashed job is not claimed again earlier."""
    waiting_since: Mapped[datetime | None]
    """The time since when it waits: in the queue, or with a run that has no rank group."""
    waiting_for: Mapped[str | None]
    """The reason, for a person, why its run waits, while it runs. What a queued job waits for follows from other
    rows."""
    device_hour_price: Mapped[float | None]
    """The price of each rank's hour, when the job was submitted; None: there was none."""
    currency: Mapped[str | None] = mapped_column(String(3))
    """The currency of that price."""
    trial_ends: Mapped[int] = mapped_column(server_default="0", default=0)
    """The number of times that a trial of it has ended, or has gone on after its end: what was counted of those that
    have ended holds until this changes."""
    thinned_at: Mapped[datetime | None]
    """The time at which `service.use_cases.keeping.retention` last went through its trials and events."""
    disk_bytes: Mapped[int | None] = mapped_column(BigInteger)
    """Bytes of its checkpoints, temporary files and logs, and of what is kept of its ranks' output, when its worker
    last looked; None: it has never run."""

    trials: Mapped[list[Trial]] = relationship(back_populates="job", lazy="raise", passive_deletes=True)

    @property
    def specification(self) -> JobSpecification:
        """The specification as submitted, with its defaults, and with the budget as it is now; parsed once."""
        stored = self.stored_specification
        parsed: tuple[dict[str, Any], JobSpecification] | None = self.__dict__.get(_PARSED)
        if parsed is None or parsed[0] is not stored:  # it was refreshed
            content = marshal.dumps(stored, _WITHOUT_REFERENCES)
            parse = _parsed if len(content) <= MAX_REMEMBERED_BYTES else _parse
            parsed = self.__dict__[_PARSED] = stored, parse(content)
        return parsed[1]

    @specification.setter
    def specification(self, specification: JobSpecification) -> None:
        self.stored_specification = specification.model_dump(mode="json")

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """All of them, the one that counts first."""
        return tuple(Objective(stored["metric"], Direction(stored["direction"])) for stored in self.stored_objectives)

    @objectives.setter
    def objectives(self, objectives: Sequence[Objective]) -> None:
        self.stored_objectives = [
            {"metric": objective.metric, "direction": objective.direction.value} for objective in objectives
        ]

    @property
    def price(self) -> Price | None:
        """The price of an hour of each rank; None: there was none when the job was submitted."""
        if self.device_hour_price is None or self.currency is None:
            return None
        return Price(self.device_hour_price, self.currency)

    @property
    def metric(self) -> str:
        """The metric of the first objective."""
        return self.objectives[0].metric

    @property
    def direction(self) -> Direction:
        """The direction of the first objective."""
        return self.objectives[0].direction


class Trial(Base):
    """One config trained once."""

    __tablename__ = "trials"
    # None is for an order in which a list may stand, as by the end: it sorts the trials of one job, ten thousand at
    # most, and each trial that begins or ends would have to write to every one of them.
    __table_args__ = (
        UniqueConstraint("job_id", "number"),
        # Nearly empty: a run looks several times a second whether anything is asked of its trials.
        Index(
            "ix_trials_requested",
            "job_id",
            sqlite_where=text("requested IS NOT NULL"),
            postgresql_where=text("requested IS NOT NULL"),
        ),
        Index("ix_trials_job_id_idempotency_key", "job_id", "idempotency_key", unique=True),
        # Holds all that a list of jobs tells of its trials: their number, time and steps, and the best of each phase.
        Index("ix_trials_progress", "job_id", "phase", "state", "value", "number", "spent_seconds", "step"),
    )

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"))
    number: Mapped[int]
    phase: Mapped[Phase]
    state: Mapped[TrialState]
    reason: Mapped[FailureReason | None]
    cancel_cause: Mapped[CancelCause | None]
    detail: Mapped[str | None]
    """An explanation for a person."""
    parameters: Mapped[dict[str, Any]]
    """{parameter name: sampled value}"""
    config: Mapped[dict[str, Any]]
    """A `TrialConfig` as JSON."""
    confirms: Mapped[int | None]
    """In the confirmation: the number of the trial whose config this one repeats with a seed of its own."""
    forked_from: Mapped[int | None]
    """The number of the trial from whose checkpoint it begins; None: it begins from nothing."""
    forked_at_step: Mapped[int | None]
    """The step of that checkpoint; None: there is none."""
    proposed: Mapped[bool] = mapped_column(default=False)
    """True if a user proposed it, not the search."""
    idempotency_key: Mapped[str | None] = mapped_column(String(255))
    """The key of the request that proposed it."""
    request_digest: Mapped[str | None] = mapped_column(String(64))
    runs: Mapped[int] = mapped_column(default=0)
    """Times it was started: more than 1 after a loss."""
    losses: Mapped[int] = mapped_column(default=0)
    """Times it was taken up again after a rank of it, or its machine, had died."""
    memory_failures: Mapped[int] = mapped_column(default=0)
    """Times it was taken up again after it had run out of memory."""
    step: Mapped[int] = mapped_column(default=0)
    seconds: Mapped[float] = mapped_column(default=0.0)
    """Training time up to `step`."""
    spent_seconds: Mapped[float] = mapped_column(default=0.0)
    """Training time measured in all its runs: more than `seconds` if steps were trained again."""
    requested: Mapped[TrialRequest | None]
    """The request to the job's run about it."""
    spared: Mapped[bool] = mapped_column(default=False)
    """True if it is neither pruned nor paused: a user has it tried again."""
    value: Mapped[float | None]
    """The objective's metric at `step`."""
    fingerprint: Mapped[str | None] = mapped_column(String(64))
    """The fingerprint of its model (`service.specification.identity`); None: it was never measured, or is older than
    this column."""
    data_digest: Mapped[str | None] = mapped_column(String(64))
    """The digest of its data; None: there is no telling either."""
    environment: Mapped[dict[str, Any] | None]
    """The `trainers.identity.values.Environment` of its last run as JSON."""
    places: Mapped[dict[str, Any] | None]
    """{run, from "1" on: the `service.places.NodePlace`s of its ranks as JSON}, but for runs that ended before anything
    was heard of them."""
    metrics: Mapped[dict[str, Any]]
    """Every metric at `step`."""
    note: Mapped[str | None] = mapped_column(Text())
    """A user's own text about it."""
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]

    job: Mapped[Job] = relationship(back_populates="trials", lazy="raise")
    measurements: Mapped[list[MeasurementRow]] = relationship(
        back_populates="trial", lazy="raise", passive_deletes=True, order_by="MeasurementRow.step"
    )

    @property
    def stored_config(self) -> StoredConfig:
        """The trial's config as readers have it; read anew each time."""
        return StoredConfig.of(self.config)

    @property
    def stored_environment(self) -> Environment | None:
        """The environment as readers have it; read anew each time."""
        return None if self.environment is None else Environment.from_json(self.environment)


class MetricSet(Base):
    """The names of the metrics that measurements have, kept once for all that have the same."""

    __tablename__ = "metric_sets"

    id: Mapped[int] = mapped_column(primary_key=True)
    digest: Mapped[str] = mapped_column(String(64), unique=True)
    """`service.store.packing.digest_of` the names."""
    names: Mapped[list[Any]]


class MeasurementRow(Base):
    """A measurement of a trial, at one step."""

    __tablename__ = "measurements"
    __table_args__ = ({"sqlite_with_rowid": False},)

    trial_id: Mapped[str] = mapped_column(ForeignKey("trials.id", ondelete="CASCADE"), primary_key=True)
    step: Mapped[int] = mapped_column(primary_key=True)
    epoch: Mapped[float]
    seconds: Mapped[float]
    metric_set_id: Mapped[int] = mapped_column(ForeignKey("metric_sets.id"))
    packed_values: Mapped[bytes]
    """The values of the metrics of its set, by `service.store.packing`."""
    recorded_at: Mapped[datetime]

    trial: Mapped[Trial] = relationship(back_populates="measurements", lazy="raise")
    metric_set: Mapped[MetricSet] = relationship(lazy="raise")

    @property
    def metrics(self) -> dict[str, float | None]:
        """Every metric; None: it was not finite. Where the set was loaded, too."""
        return dict(zip(self.metric_set.names, unpack(self.packed_values), strict=True))


class DeletedJob(Base):
    """A job that was deleted: whose files may go wherever they turn up, and what counts against its project."""

    __tablename__ = "deleted_jobs"

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    project: Mapped[str] = mapped_column(String(64), index=True)
    rank_seconds: Mapped[float]
    """Training time of all its trials times their ranks: they stay spent."""
    deleted_at: Mapped[datetime]
