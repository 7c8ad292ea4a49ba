"""Moves the clock of a Python process forward by `TEST_SECONDS_AHEAD`, or back: only an administrator can set that of a
machine.

Python imports it before anything else if its directory is in `PYTHONPATH`.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta, tzinfo

from service import clock

AHEAD = timedelta(seconds=float(os.environ["TEST_SECONDS_AHEAD"]))


class WrongClock(datetime):
    """The class `datetime` on a machine whose clock is off."""

    @classmethod
    def now(cls, tz: tzinfo | None = UTC) -> datetime:  # type: ignore[override]  # the service only asks for UTC
        return datetime.now(tz) + AHEAD


clock.datetime = WrongClock  # type: ignore[attr-defined]  # it is an import of that module
