"""Removal of the remains of jobs that were deleted, or that ended without a run, of most of the history of jobs that
ended long ago, and of workers that are gone.

Two threads of a worker do it, a little at a time. For a deleted job the files are removed first, then its rows; if a
worker is killed in the middle, any worker removes the rest at its next check. A job's log is on the machines of its
runs: each worker removes logs on its own machine.
"""

from __future__ import annotations

import logging
import threading
import time
from datetime import timedelta

from service.checkpoint_files import weights_of
from service.clock import Clock, utc_now
from service.scheduler import disk
from service.scheduler.checkpoint_storage import checkpoints_of, directories_in, remove, remove_all_but
from service.settings import Settings
from service.store.repositories import DeletionRepository, JobRepository
from service.store.session import DATABASE_ERRORS, UNREADABLE_ROWS, Database
from service.use_cases.keeping.checkpoints import KEPT, trials_that_go_on
from service.use_cases.keeping.code import has_unused_code, remove_unused_code
from service.use_cases.keeping.deletion import next_to_remove, remove_some
from service.use_cases.keeping.retention import next_to_thin, thin
from service.use_cases.leases import has_gone_workers, remove_gone_workers
from trainers.storage import Place, StoreFailed

LOOK_SECONDS = 10.0
"""Seconds between two looks for a job."""
CHECKPOINT_LOOK_SECONDS = 600.0
"""Seconds between two looks for checkpoints whose time is over: a list of the directories, and a row of each."""
PAUSE_SECONDS = 0.05
"""Pause between two transactions, in which others write."""
THIN_LOOK_SECONDS = 600.0
"""Seconds between two looks for a job to thin."""
THIN_PAUSE_SECONDS = 0.2
"""Seconds between two transactions that thin, in which others write."""

logger = logging.getLogger(__name__)


def keep_removing(database: Database, settings: Settings, *, gone: threading.Event, clock: Clock = utc_now) -> None:
    """Removes deleted jobs, and checkpoints whose time is over, until `gone` is set."""
    looked = time.monotonic()  # the worker did before it began
    while not gone.is_set():
        if time.monotonic() - looked > CHECKPOINT_LOOK_SECONDS:
            remove_checkpoints_of_finished_jobs(
                database, settings.checkpoint_place, kept=settings.checkpoints_kept, clock=clock
            )
            looked = time.monotonic()
        try:
            found = remove_next(database, settings, gone=gone, clock=clock)
            if found is None:
                remove_unused(database, clock=clock)
        except DATABASE_ERRORS as error:
            logger.warning("cannot remove deleted jobs: %s", error)
            found = None
        if found is None:
            gone.wait(LOOK_SECONDS)


def remove_next(database: Database, settings: Settings, *, gone: threading.Event, clock: Clock = utc_now) -> str | None:
    """The deleted job that was removed; None: there is nothing to remove."""
    with database.reading() as session:
        job_id = next_to_remove(session, now=clock())
    if job_id is None:
        return None
    remove(checkpoints_of(settings.checkpoint_place, job_id))
    remove(weights_of(settings.checkpoint_place, job_id))
    disk.remove_log(settings.data_dir, job_id)
    is_more = True
    while is_more and not gone.wait(PAUSE_SECONDS):
        with database.writing() as session:
            is_more = remove_some(session, job_id)
    if not is_more:
        logger.info("removed the deleted job %s", job_id)
    return job_id


def remove_unused(database: Database, *, clock: Clock = utc_now) -> None:
    """Removes code that no job names any more, and workers that have been gone for long."""
    with database.reading() as session:
        has_code, has_workers = has_unused_code(session, now=clock()), has_gone_workers(session, now=clock())
    if has_code:
        with database.writing() as session:
            num_removed = remove_unused_code(session, now=clock())
        logger.info("removed code that no job names: %d", num_removed)
    if has_workers:
        with database.writing() as session:
            num_removed = remove_gone_workers(session, now=clock())
        logger.info("removed workers that have been gone for long: %d", num_removed)


def remove_logs_of_deleted_jobs(database: Database, settings: Settings) -> None:
    """Removes the logs on this machine of jobs that another worker has removed."""
    jobs = disk.jobs_with_logs(settings.data_dir)
    if not jobs:
        return
    try:
        with database.reading() as session:
            deleted = DeletionRepository(session).among(jobs)
    except DATABASE_ERRORS as error:
        logger.warning("cannot see whose logs can go: %s", error)
        return  # they go at the next call
    for job_id in deleted:
        disk.remove_log(settings.data_dir, job_id)


def remove_what_jobs_left(database: Database, settings: Settings) -> None:
    """Removes checkpoints of jobs that have ended, and logs on this machine of those that were deleted."""
    remove_checkpoints_of_finished_jobs(
        database, settings.checkpoint_place, kept=settings.checkpoints_kept, clock=database.now
    )
    remove_logs_of_deleted_jobs(database, settings)


def remove_checkpoints_of_finished_jobs(
    database: Database, checkpoints: Place, *, kept: timedelta = KEPT, clock: Clock = utc_now
) -> None:
    """Removes the remains of jobs that ended without a run: cancelled in the queue, for instance, or deleted while a
    run was still ending; and of jobs that can no longer be continued.

    Those of unknown jobs stay: they can be another database's.

    Args:
        kept: how long after a job's end the checkpoints of trials that could continue are kept.
    """
    try:
        for name in directories_in(checkpoints):
            if name.startswith("job_"):
                remove_checkpoints_if_finished(database, checkpoints, name, kept=kept, clock=clock)
    except (StoreFailed, *DATABASE_ERRORS) as error:
        logger.warning("cannot see which checkpoints are left, and whose can go: %s", error)  # they go at the next call


def remove_checkpoints_if_finished(
    database: Database, checkpoints: Place, job_id: str, *, kept: timedelta = KEPT, clock: Clock = utc_now
) -> None:
    """Removes the checkpoints of a job that has ended, except those of trials that will go on if the job does.

    Args:
        kept: as `remove_checkpoints_of_finished_jobs` takes it.

    Raises:
        StoreFailed: the store did not answer.
        DATABASE_ERRORS: the database did not answer.
    """
    place = checkpoints_of(checkpoints, job_id)
    try:
        remove_all_but(
            database,
            place,
            job_id,
            lambda session, job: trials_that_go_on(session, job, kept=kept, now=clock()),
            clock=clock,
        )
    except UNREADABLE_ROWS as error:
        logger.warning("the checkpoints of job %s go, as its rows cannot be read: %s", job_id, error)
        remove(place)


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
            gone.wait(THIN_LOOK_SECONDS)


def thin_next(database: Database, *, after_days: float, gone: threading.Event, clock: Clock = utc_now) -> str | None:
    """The job that was thinned; None: there is nothing to thin."""
    with database.reading() as session:
        job_id = next_to_thin(session, finished_before=clock() - timedelta(days=after_days))
    if job_id is None:
        return None
    number, is_done = -1, False
    while not is_done and not gone.wait(THIN_PAUSE_SECONDS):
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
