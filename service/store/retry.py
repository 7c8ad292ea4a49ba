"""Reading and writing through short outages of the database."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeAlias, TypeVar

from sqlalchemy.orm import Session

from service.store.session import DATABASE_ERRORS, Database, is_unavailable

T = TypeVar("T")

Write: TypeAlias = Callable[[Session], object]
"""Changes made in a writing session."""

logger = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 5.0


def write_with_retries(
    database: Database,
    write: Callable[[Session], T],
    *,
    give_up_seconds: float,
    may_wait: Callable[[], bool] = lambda: True,
    sleep: Callable[[float], object] = time.sleep,
) -> T:
    """What `write` gives, run in a writing session, and again after a pause while the database is out of reach.

    `write` runs anew each time, so it must not keep anything of a session that was rolled back. It can also run again
    after a commit whose confirmation was lost.

    Args:
        give_up_seconds: after so long the database's error is raised.
        may_wait: asked before each pause; False raises the error at once.

    Raises:
        DBAPIError, TimeoutError: SQLAlchemy's; the database stayed out of reach, or refused the statement.
    """
    return with_retries(database.writing, write, give_up_seconds=give_up_seconds, may_wait=may_wait, sleep=sleep)


def with_retries(
    session_of: Callable[[], AbstractContextManager[Session]],
    use: Callable[[Session], T],
    *,
    give_up_seconds: float,
    may_wait: Callable[[], bool] = lambda: True,
    sleep: Callable[[float], object] = time.sleep,
) -> T:
    """What `use` gives of a session that `session_of` opens; see `write_with_retries`."""
    deadline = time.monotonic() + give_up_seconds
    pause = FIRST_PAUSE_SECONDS
    while True:
        try:
            with session_of() as session:
                return use(session)
        except DATABASE_ERRORS as error:
            if not is_unavailable(error) or time.monotonic() + pause > deadline or not may_wait():
                raise
            logger.warning(
                "the database is out of reach, trying again in %.1f s: %s", pause, getattr(error, "orig", error)
            )
        sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
