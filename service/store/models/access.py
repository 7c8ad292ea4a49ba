"""The tables of who may ask for what: projects with their quotas, tokens, signing keys, the audit trail."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, String, text
from sqlalchemy.orm import Mapped, mapped_column

from service.store.models.base import SERIAL, Base


class Project(Base):
    """Jobs that belong together, and how much they may take at most. A quota that is None sets no limit."""

    __tablename__ = "projects"

    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    created_at: Mapped[datetime]
    max_running_jobs: Mapped[int | None]
    """Jobs that run at once, at most; further ones wait in the queue."""
    max_queued_jobs: Mapped[int | None]
    """Jobs that wait at once, at most; further ones are refused."""
    max_device_hours: Mapped[float | None]
    """Device-hours of all trials of all its jobs, ever, at most. Once they are spent, no job is taken or begun, and
    those that run end."""
    max_stored_bytes: Mapped[int | None] = mapped_column(BigInteger)
    """Bytes of checkpoints, temporary files and logs of all its jobs, at most. Once they are reached, no job is
    taken."""


class Token(Base):
    """A token: what is known of it, never its secret."""

    __tablename__ = "tokens"
    __table_args__ = (
        # A name says who did something: it has one token at a time.
        Index(
            "uq_tokens_name",
            "name",
            unique=True,
            sqlite_where=text("revoked_at IS NULL"),
            postgresql_where=text("revoked_at IS NULL"),
        ),
    )

    prefix: Mapped[str] = mapped_column(String(16), primary_key=True)
    """The part of its text by which it is found and named."""
    digest: Mapped[str] = mapped_column(String(64))
    """SHA-256 of its secret, in hexadecimal."""
    name: Mapped[str] = mapped_column(String(100))
    project: Mapped[str] = mapped_column(ForeignKey("projects.name"))
    scopes: Mapped[list[Any]]
    """Values of `service.access.caller.Scope`."""
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
    """The time of its last use, to some minutes; None: never."""
    sessions_ended_at: Mapped[datetime | None]
    """The time at which somebody last logged out: sessions in browsers that began before are over."""


class SigningKey(Base):
    """A random key that all API processes of this database sign with."""

    __tablename__ = "signing_keys"

    name: Mapped[str] = mapped_column(String(40), primary_key=True)
    value: Mapped[str] = mapped_column(String(64))
    """256 random bits, in hexadecimal."""
    created_at: Mapped[datetime]


class AuditEntry(Base):
    """Something that somebody did; append-only."""

    __tablename__ = "audit_entries"
    __table_args__ = ({"sqlite_autoincrement": True},)

    id: Mapped[int] = mapped_column(SERIAL, primary_key=True, autoincrement=True)
    at: Mapped[datetime]
    actor: Mapped[str | None] = mapped_column(String(200))
    """The name of a token, or `shell:` and the account that ran a command; None: nobody had to say who asks."""
    token: Mapped[str | None] = mapped_column(String(16))
    """Its prefix."""
    project: Mapped[str] = mapped_column(String(64))
    """The actor's project."""
    action: Mapped[str] = mapped_column(String(60))
    """E.g. `cancel_job`."""
    target: Mapped[str] = mapped_column(String(200))
    """E.g. a job's id, with a trial's number behind a slash."""
    address: Mapped[str | None] = mapped_column(String(64))
    """The address that it was asked from."""
