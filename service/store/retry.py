"""Reading and writing through short outages of the database."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeAlias, TypeVar

from sqlalchemy.orm import Session

from service.store.session import Database, is_unavailable
from service.store.writes import why_it_fails
from trainers.retry import retry

T = TypeVar("T")

Write: TypeAlias = Callable[[Session], object]
"""Changes made in a writing session."""

logger = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 0.1
"""A connection that was cut is often back by then: a server that restarts takes a second or so."""


def write_with_retries(
    database: Database,
    write: Callable[[Session], T],
    *,
    give_up_seconds: float,
    may_wait: Callable[[], bool] = lambda: True,
    sleep: Callable[[float], object] = time.sleep,
) -> T:
    """The result of `write` in a writing session; run again after a pause while the database is out of reach.

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
    """The result of `use` in a session that `session_of` opens; see `write_with_retries`."""

    def once() -> T:
        with session_of() as session:
            return use(session)

    return retry(
        once,
        is_temporary=is_unavailable,
        give_up_seconds=give_up_seconds,
        first_pause_seconds=FIRST_PAUSE_SECONDS,
        may_wait=may_wait,
        tell=_tell,
        sleep=sleep,
    )


def _tell(error: Exception, pause: float) -> None:
    logger.warning("%s, trying again in %.1f s: %s", why_it_fails(error), pause, getattr(error, "orig", error))
