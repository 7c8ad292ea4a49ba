"""The clock of a database's server, by which all machines of a service tell the time.

A lease that one machine writes is read by others. Where each went by its own clock, one that is ahead would take the
jobs of living workers, and all others those of one that is behind.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Engine, event

from service.clock import utc_now

LOOK_SECONDS = 10.0
"""Seconds from one look at the server's clock until the next use of a connection looks again: a machine whose clock is
set goes wrong for no longer, less than any lease."""
TOLD_DIFFERENCE = timedelta(seconds=2)
"""A machine whose clock is off by more is told of, by judgement: a look takes milliseconds, and times in logs are
those of the machine."""

logger = logging.getLogger(__name__)


class ServerClock:
    """The time of a PostgreSQL server, from this machine's clock and what that is off by. May be used by several
    threads."""

    def __init__(self, engine: Engine) -> None:
        """Makes an engine read the server's clock when a connection is taken, from time to time."""
        self._engine = engine
        self._ahead = timedelta(0)
        self._looked: float | None = None
        """Time of the last look, by the monotonic clock; None: there was none."""
        self._is_told = False
        event.listen(engine, "checkout", self._look)

    def now(self) -> datetime:
        """The present time, aware; before the first connection, by this machine's clock."""
        return utc_now() + self._ahead

    def _look(self, connection: Any, _record: object, _lent: object) -> None:
        if self._looked is not None and time.monotonic() - self._looked < LOOK_SECONDS:
            return
        self._looked = time.monotonic()
        driver = self._engine.dialect.loaded_dbapi
        with suppress(driver.Error):  # the statement for which it was taken fails, too, and tells
            before = utc_now()
            row = connection.execute("SELECT clock_timestamp()").fetchone()
            after = utc_now()
            connection.rollback()
            assert row is not None, "a SELECT without FROM has a row"
            self._note(row[0].astimezone(UTC) - (before + (after - before) / 2))

    def _note(self, ahead: timedelta) -> None:
        self._ahead = ahead
        is_off = abs(ahead) > TOLD_DIFFERENCE
        if is_off and not self._is_told:
            how = "behind" if ahead > timedelta(0) else "ahead of"
            logger.warning(
                "this machine's clock is %.0f s %s that of the database, by which the service goes",
                abs(ahead).total_seconds(),
                how,
            )
        self._is_told = is_off
