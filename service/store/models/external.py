"""The tables of trials that others train: what their clients ask of a job's run, and who has which trial."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, String, false, text
from sqlalchemy.orm import Mapped, mapped_column

from service.specification.external.messages import End, Report, RequestKind, RunAnswer, Suggest
from service.store.models.base import SERIAL, Base


class ExternalRequest(Base):
    """A request of a client to a job's run, and the run's answer; in the order in which they came."""

    __tablename__ = "external_requests"
    __table_args__ = (
        Index("uq_external_requests_job_id_key", "job_id", "idempotency_key", unique=True),
        # A run looks several times a second for those that wait.
        Index(
            "ix_external_requests_waiting",
            "job_id",
            "id",
            sqlite_where=text("answered_at IS NULL"),
            postgresql_where=text("answered_at IS NULL"),
        ),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(SERIAL, primary_key=True, autoincrement=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"))
    kind: Mapped[str] = mapped_column(String(20))
    """A `RequestKind`."""
    number: Mapped[int | None]
    """The trial's number; None: it asks for one."""
    idempotency_key: Mapped[str] = mapped_column(String(255))
    """The client's, or one made up for it."""
    request_digest: Mapped[str] = mapped_column(String(64))
    stored_content: Mapped[dict[str, Any]] = mapped_column("content")
    """The `Suggest`, `Report` or `End`, as JSON."""
    created_at: Mapped[datetime]
    asked_at: Mapped[datetime]
    """The time at which its client last asked for the answer."""
    answered_at: Mapped[datetime | None]
    stored_answer: Mapped[dict[str, Any] | None] = mapped_column("answer")
    """The run's answer, as JSON; None: there is none yet."""

    @property
    def content(self) -> Suggest | Report | End:
        """The content of the request."""
        match RequestKind(self.kind):
            case RequestKind.SUGGEST:
                return Suggest.model_validate(self.stored_content)
            case RequestKind.REPORT:
                return Report.model_validate(self.stored_content)
            case RequestKind.END:
                return End.model_validate(self.stored_content)

    @property
    def answer(self) -> RunAnswer | None:
        """None: it waits for one."""
        return None if self.stored_answer is None else RunAnswer.model_validate(self.stored_answer)


class TrialLease(Base):
    """A trial that a client has to train: its own while it reports."""

    __tablename__ = "trial_leases"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(40))
    """The lease's name, which its client knows, and no other one."""
    client: Mapped[str | None] = mapped_column(String(200))
    """The client that has it, for people."""
    begun_at: Mapped[datetime]
    begun_seconds: Mapped[float]
    """Training time by clients before this one."""
    is_released: Mapped[bool] = mapped_column(default=False, server_default=false())
    """True if its client was told to go because the job is paused: no loss."""
    expires_at: Mapped[datetime]
