"""Rules of all tables: times are aware UTC; ids are opaque, sortable and prefixed; JSON columns hold plain values."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, DateTime, Dialect, Enum, Integer, MetaData, TypeDecorator
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase

from service.domain import CancelCause, FailureReason, JobRequest, JobState, Phase, TrialRequest, TrialState
from service.evidence.types import EvidenceStatus

SERIAL = BigInteger().with_variant(Integer(), "sqlite")
"""The type of ids that the database counts up. SQLite does so only for INTEGER, which has 64 bits."""


def _read_utc(stored: str | None) -> datetime | None:
    """A time of SQLite, which keeps text without a zone; in half the time of SQLAlchemy's own two steps."""
    return None if stored is None else datetime.fromisoformat(stored + "+00:00")


class UtcDateTime(TypeDecorator[datetime]):
    """An aware datetime, stored in UTC; SQLite keeps no zone, so it is put back on reading."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], datetime | None] | None:
        if dialect.name == "sqlite":
            return _read_utc
        return super().result_processor(dialect, coltype)

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"a naive datetime cannot be stored: {value!r}")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _values(enum: type[Any]) -> list[str]:
    return [member.value for member in enum]


def _enum(enum: type[Any], name: str) -> Enum:
    """A string column; a new member needs no migration, because the domain checks values, not the database."""
    return Enum(enum, name=name, native_enum=False, create_constraint=False, values_callable=_values, length=20)


class Base(DeclarativeBase):
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(column_0_N_label)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy reads this class attribute
        datetime: UtcDateTime,
        dict[str, Any]: JSON().with_variant(JSONB(), "postgresql"),
        list[Any]: JSON().with_variant(JSONB(), "postgresql"),
        JobState: _enum(JobState, "job_state"),
        TrialState: _enum(TrialState, "trial_state"),
        JobRequest: _enum(JobRequest, "job_request"),
        TrialRequest: _enum(TrialRequest, "trial_request"),
        FailureReason: _enum(FailureReason, "failure_reason"),
        CancelCause: _enum(CancelCause, "cancel_cause"),
        Phase: _enum(Phase, "phase"),
        EvidenceStatus: _enum(EvidenceStatus, "recommendation_status"),
    }
