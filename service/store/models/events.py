"""The tables of events, which also feed live streams, of webhooks, and of the messages that are sent to them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Enum, ForeignKey, Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from service.domain import DeliveryState
from service.store.models.base import SERIAL, Base


class Event(Base):
    """Something that happened, in commit order; append-only, feeds the live streams."""

    __tablename__ = "events"
    __table_args__ = (Index("ix_events_job_id_id", "job_id", "id"), {"sqlite_autoincrement": True})

    id: Mapped[int] = mapped_column(SERIAL, primary_key=True, autoincrement=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"))
    kind: Mapped[str] = mapped_column(String(40))
    data: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]


class Webhook(Base):
    """An address that is told what happens to the jobs of a project, or to one job."""

    __tablename__ = "webhooks"
    __table_args__ = (Index("ix_webhooks_project_id", "project", "id"),)

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    project: Mapped[str] = mapped_column(String(64))
    job_id: Mapped[str | None] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"))
    """None: all jobs of the project."""
    url: Mapped[str] = mapped_column(String(2000))
    kinds: Mapped[list[Any]]
    """The kinds of events to send."""
    secret: Mapped[str] = mapped_column(String(100))
    """The key with which each message is signed; whoever has it can forge one."""
    owner: Mapped[str | None] = mapped_column(String(100))
    """The name of the token that made it."""
    created_at: Mapped[datetime]
    last_event_id: Mapped[int] = mapped_column(BigInteger)
    """Events up to this one have messages, where they are to have any."""
    num_failures: Mapped[int] = mapped_column(default=0)
    """Requests in a row that failed."""
    disabled_at: Mapped[datetime | None]
    disabled_because: Mapped[str | None] = mapped_column(String(1000))


class Delivery(Base):
    """A message to a webhook, about one event; the outbox."""

    __tablename__ = "webhook_deliveries"
    __table_args__ = (
        Index("ix_webhook_deliveries_state_next_attempt_at", "state", "next_attempt_at"),
        Index("ix_webhook_deliveries_webhook_id_id", "webhook_id", "id"),
    )

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    webhook_id: Mapped[str] = mapped_column(ForeignKey("webhooks.id", ondelete="CASCADE"))
    event_id: Mapped[int] = mapped_column(BigInteger)
    kind: Mapped[str] = mapped_column(String(40))
    body: Mapped[str] = mapped_column(Text)
    """The body that is sent."""
    state: Mapped[DeliveryState] = mapped_column(
        Enum(
            DeliveryState,
            name="delivery_state",
            native_enum=False,
            create_constraint=False,
            values_callable=lambda states: [state.value for state in states],
            length=20,
        )
    )
    attempts: Mapped[int] = mapped_column(default=0)
    next_attempt_at: Mapped[datetime]
    """The time when it is sent, while it waits; or when it is taken for lost and sent again, while it is sent."""
    status: Mapped[int | None]
    """The status of the last answer."""
    answer: Mapped[str | None] = mapped_column(Text)
    """The beginning of the last answer, or why there was none."""
    seconds: Mapped[float | None]
    """Time that the last request took."""
    created_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]
