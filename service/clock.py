"""The clock of the service: aware UTC. Durations are measured by `time.monotonic`, which nobody sets."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeAlias

Clock: TypeAlias = Callable[[], datetime]

SECONDS_PER_HOUR = 3600.0
"""Seconds of an hour. People count devices' time in hours, programs and the database in seconds."""


def utc_now() -> datetime:
    """The present time, aware."""
    return datetime.now(UTC)


def utc_text(moment: datetime) -> str:
    """Date and time in UTC, to the second, for a person: `2026-03-01 12:00:00 UTC`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
