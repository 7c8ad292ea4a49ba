"""The thread of a worker that thins what jobs which ended long ago have left, a little at a time."""

from __future__ import annotations

import logging
import threading
from datetime import timedelta

from service.clock import Clock, utc_now
from service.store.repositories import JobRepository
from service.store.session import DATABASE_ERRORS, UNREADABLE_ROWS, Database
from service.use_cases.keeping.retention import next_to_thin, thin

LOOK_SECONDS = 600.0
"""Seconds between two looks for a job."""
PAUSE_SECONDS = 0.2
"""Between two transactions, in which others write."""

logger = logging.getLogger(__name__)


def keep_thinning(database: Database, *, after_days: float, gone: threading.Event, clock: Clock = utc_now) -> None:
    """Thins jobs until `gone` is set.

    Args:
        after_days: since the end of a job.
    """
    while not gone.is_set():
        try:
            found = thin_next(database, after_days=after_days, gone=gone, clock=clock)
        except DATABASE_ERRORS as error:
            logger.warning("cannot thin the history of jobs: %s", error)
            found = None
        if found is None:
            gone.wait(LOOK_SECONDS)


def thin_next(database: Database, *, after_days: float, gone: threading.Event, clock: Clock = utc_now) -> str | None:
    """The job that was thinned; None: there is none to be."""
    with database.reading() as session:
        job_id = next_to_thin(session, finished_before=clock() - timedelta(days=after_days))
    if job_id is None:
        return None
    number, is_done = -1, False
    while not is_done and not gone.wait(PAUSE_SECONDS):
        try:
            with database.writing() as session:
                step = thin(session, job_id, after_number=number, now=clock())
        except UNREADABLE_ROWS as error:  # or it would be found again each time, and no other
            logger.warning("the history of job %s stays, as its rows cannot be read: %s", job_id, error)
            with database.writing() as session:
                JobRepository(session).mark_thinned(job_id, clock())
            return job_id
        number, is_done = step.after_number, step.is_done
    if is_done:
        logger.info("thinned the history of job %s", job_id)
    return job_id
