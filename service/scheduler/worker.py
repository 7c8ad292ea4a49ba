"""The worker: claims jobs by lease, keeps the leases, and runs each job in a process of its own.

`python -m service.scheduler.worker`. It loads neither torch nor Ray, so whatever a run does cannot disturb its leases.
SIGTERM and SIGINT end it: the run is stopped and its job goes back to the queue.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from service.checkpoint_files import weights_of
from service.domain import JobState
from service.monitoring.logs import bound, set_up_logs
from service.scheduler import disk
from service.scheduler.abandoned import end_abandoned_runs, remove_abandoned_directories
from service.scheduler.checkpoint_storage import CheckpointsUnusable, checkpoint_bytes, checkpoints_of, try_out
from service.scheduler.cluster import process_tree, worker_template
from service.scheduler.cluster.run_environment import run_environment
from service.scheduler.disk import Room
from service.scheduler.external import beside as external_runs
from service.scheduler.external.beside import ExternalRuns
from service.scheduler.kept_weights import keep_winners, keep_winners_of_all
from service.scheduler.launcher import Launcher
from service.scheduler.output.on_this_machine import keep_what_was_left, local_keeper
from service.scheduler.removal import keep_removing, keep_thinning, remove_what_jobs_left
from service.scheduler.run_process import describe_crash, held_pipe, make_directory, start_run, supervise
from service.scheduler.tune.run_end import ExitStatus
from service.settings import ENV_PREFIX, Settings
from service.store.migrate import DatabaseOfAnotherVersion
from service.store.retry import write_with_retries
from service.store.session import DATABASE_ERRORS, Database, is_unavailable
from service.store.writes import why_it_fails
from service.use_cases.leases import (
    BEATS_PER_LEASE,
    Lease,
    beat,
    claim_job,
    end_worker,
    note_disk_use,
    register_worker,
    release_job,
)
from service.webhooks.delivering import keep_delivering
from trainers.processes.orphans import adopt_orphans
from trainers.storage import StoreFailed, masked

T = TypeVar("T")

logger = logging.getLogger(__name__)

WORKER_OUTAGE_SECONDS = 3600.0
"""Seconds that the database may be out of reach before the worker gives up: a restart, a move to another machine."""
HOUSEKEEPING_SECONDS = 10.0
"""Seconds between two looks of a worker at the files of its run."""


def run_worker(settings: Settings, *, stop: threading.Event) -> None:
    """Runs jobs, one at a time, until `stop` is set.

    To be called in a process of its own: it kills every process that a run leaves behind.

    Raises:
        CheckpointsUnusable: before anything is run.
        DatabaseOfAnotherVersion: before another job is run, as once a newer version has migrated it.
    """
    try_out(
        settings.checkpoint_place,
        setting=f"{ENV_PREFIX}CHECKPOINT_DIRECTORY",
        value=masked(settings.checkpoint_directory or ""),
    )
    adopt_orphans()
    end_abandoned_runs()
    remove_abandoned_directories()
    database = Database(settings.resolved_database_url)
    writing = _Writing(database, stop)
    pid = os.getpid()
    writing(lambda session: session.connection())  # from then on the database knows what time it is
    worker_id = writing(
        lambda session: register_worker(
            session, host=socket.gethostname(), pid=pid, allows_code=settings.allow_code, now=database.now()
        )
    )
    remove_what_jobs_left(database, settings)
    keep_winners_of_all(database, settings.checkpoint_place)
    keep_what_was_left(settings, database)
    # The representation of an engine's URL shows no password.
    logger.info("worker %s runs jobs of %r", worker_id, database.engine.url)
    gone = threading.Event()
    helpers = _helpers(database, worker_id, settings, gone)
    for helper in helpers:
        helper.start()
    launcher, room = _launcher(settings), Room(settings)

    def run_external(lease: Lease) -> None:
        # Once the database is of another version, the next claim ends the worker: it is told there.
        with bound(job=lease.job_id, attempt=lease.attempt), suppress(DatabaseOfAnotherVersion):
            _run(lease, settings, writing, stop, None, external, is_external=True)

    external = ExternalRuns(
        database,
        worker_id,
        lease_seconds=settings.lease_seconds,
        poll_seconds=settings.poll_seconds,
        write=writing,
        run=run_external,
        stop=stop,
        may_claim=room.is_there,
    )
    external.start()
    try:
        while not stop.is_set():
            lease = None
            if room.is_there():
                lease = writing(
                    lambda session: claim_job(
                        session, worker_id, lease_seconds=settings.lease_seconds, now=database.now(), external=False
                    )
                )
            if lease is None:
                stop.wait(settings.poll_seconds)
            else:
                with bound(job=lease.job_id, attempt=lease.attempt):
                    _run(lease, settings, writing, stop, launcher, external)
    finally:
        stop.set()  # where an error ends the worker, too: these runs end with it
        external.join()
        if launcher is not None:
            launcher.close()
        gone.set()
        for helper in helpers:
            helper.join()
        _say_farewell(database, worker_id)
        database.close()


def _helpers(database: Database, worker_id: str, settings: Settings, gone: threading.Event) -> list[threading.Thread]:
    """The threads of a worker beside its runs, which end once `gone` is set."""
    tasks: dict[str, Callable[[], None]] = {
        "heartbeat": lambda: _keep_beating(database, worker_id, settings, gone),
        "removal": lambda: keep_removing(database, settings, gone=gone, clock=database.now),
        "webhooks": lambda: keep_delivering(
            database, allows_private=settings.webhook_private_addresses, gone=gone, clock=database.now
        ),
    }
    days = settings.thin_after_days
    if days is not None:
        tasks["retention"] = lambda: keep_thinning(database, after_days=days, gone=gone, clock=database.now)
    return [threading.Thread(target=task, name=name) for name, task in tasks.items()]


@dataclass(frozen=True, slots=True)
class _Writing:
    """Writes through outages of the database, as long as the worker is wanted."""

    database: Database
    stop: threading.Event

    def __call__(self, write: Callable[[Any], T]) -> T:
        return write_with_retries(
            self.database,
            write,
            give_up_seconds=WORKER_OUTAGE_SECONDS,
            may_wait=lambda: not self.stop.is_set(),
            sleep=self.stop.wait,
        )


def _keep_beating(database: Database, worker_id: str, settings: Settings, gone: threading.Event) -> None:
    beats = True
    while not gone.is_set():
        try:
            with database.writing() as session:
                beat(session, worker_id, lease_seconds=settings.lease_seconds, now=database.now())
            beats = True
        except Exception as error:  # a thread's boundary: the next beat may succeed; if none does, the lease expires
            if beats:  # once, not at every beat of a long outage
                trace = None if isinstance(error, DATABASE_ERRORS) else error
                logger.warning("the heartbeat failed: %s", getattr(error, "orig", error), exc_info=trace)
            beats = False
        gone.wait(settings.lease_seconds / BEATS_PER_LEASE)


def _say_farewell(database: Database, worker_id: str) -> None:
    """Has nobody wait for this worker any more; where the database fails, they do until it counts as silent."""
    try:
        with database.writing() as session:
            end_worker(session, worker_id, now=database.now())
    except DATABASE_ERRORS as error:
        logger.warning("cannot tell that this worker ends: %s", getattr(error, "orig", error))


def _launcher(settings: Settings) -> Launcher | None:
    """The launcher of runs, where processes can be forked."""
    if sys.platform != "linux":
        return None
    try:
        environment = run_environment(settings, Path(tempfile.gettempdir()))
        return Launcher(environment, forks_ranks=worker_template.is_useful(settings.cluster_address))
    except OSError as error:  # no memory for a process
        logger.warning("runs start by themselves: no launcher could be started: %s", error)
        return None


def _run(
    lease: Lease,
    settings: Settings,
    writing: _Writing,
    stop: threading.Event,
    launcher: Launcher | None,
    external: ExternalRuns,
    *,
    is_external: bool = False,
) -> None:
    """Runs a job in a process of its own, and gives the job back if that process did not see it through.

    Args:
        external: the runs beside the worker's own.
        is_external: whether this is one of them.
    """
    logger.info("runs job %s (claim %d)", lease.job_id, lease.attempt)
    try:
        status, how = _run_to_its_end(
            lease, settings, writing.database, stop, launcher, external, is_external=is_external
        )
    except OSError as error:  # no space for files, no memory for a process: the next attempt may find some
        status, how = None, f"it could not be started: {error}"
    crash = None if stop.is_set() or status == ExitStatus.CUT_SHORT else how
    state = writing(lambda session: release_job(session, lease, now=writing.database.now(), crash=crash))
    if crash is not None and status != ExitStatus.IN_ORDER:
        is_written = state in (JobState.SUCCEEDED, JobState.CANCELLED)
        when = " after the job's end" if is_written else ""
        logger.warning("the run of job %s crashed%s: %s", lease.job_id, when, crash)
    logger.info("job %s is %s", lease.job_id, state or "deleted")
    remove_what_jobs_left(writing.database, settings)


def _run_to_its_end(
    lease: Lease,
    settings: Settings,
    database: Database,
    stop: threading.Event,
    launcher: Launcher | None,
    external: ExternalRuns,
    *,
    is_external: bool,
) -> tuple[int, str]:
    """The exit status of a run's process, and what is known of its end if it was a crash.

    Raises:
        OSError: the process, or the files it needs, could not be created.
    """
    log = disk.log_of(settings.data_dir, lease.job_id)
    disk.begin_log(log)
    directory = make_directory()
    others = process_tree.descendants()
    output_keeper = local_keeper(settings, database, lease.job_id)
    log_start = log.stat().st_size if log.exists() else 0
    ended = threading.Event()
    keeper = threading.Thread(
        target=_keep_house, args=(lease.job_id, settings, directory, database, ended), name="housekeeping"
    )
    keeper.start()
    if output_keeper is not None:
        output_keeper.start()
    try:
        with log.open("ab") as output, held_pipe() as stdin:
            if is_external:
                with external.starting() as note:
                    run = start_run(
                        lease,
                        settings,
                        directory,
                        stdin=stdin,
                        output=output.fileno(),
                        launcher=None,
                        module=external_runs.MODULE,
                    )
                    note(run.pid)
            else:
                run = start_run(lease, settings, directory, stdin=stdin, output=output.fileno(), launcher=launcher)
            status = supervise(run, stop)
    finally:
        if not is_external:  # it starts nothing
            process_tree.end(lambda: process_tree.descendants() - others - external.processes())
        shutil.rmtree(directory, ignore_errors=True)
        if output_keeper is not None:
            output_keeper.close()
        ended.set()
        keeper.join()
    return status, describe_crash(status, log, log_start)


def _keep_house(job_id: str, settings: Settings, directory: Path, database: Database, ended: threading.Event) -> None:
    """Notes how much disk a job takes and removes what is of no use, again and again until its run has ended, and once
    more then."""
    is_last, checkpoints = False, checkpoints_of(settings.checkpoint_place, job_id)
    weights = weights_of(settings.checkpoint_place, job_id)
    while not is_last:
        is_last = ended.wait(HOUSEKEEPING_SECONDS)
        try:
            disk.remove_logs_of_ended_processes(directory)
            if is_last:
                keep_winners(database, settings.checkpoint_place, job_id)
            num_bytes = checkpoint_bytes(weights) + disk.disk_bytes(
                settings.data_dir, job_id, checkpoints=checkpoints, run_directory=directory
            )
            with database.writing() as session:
                note_disk_use(session, job_id, num_bytes)
        except (OSError, StoreFailed, *DATABASE_ERRORS) as error:
            logger.warning("cannot look after the files of job %s: %s", job_id, getattr(error, "orig", error))


def main() -> None:
    """Runs a worker until it is told to stop."""
    settings = Settings()
    set_up_logs(settings.log_format)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        # From a thread of its own: the handler may interrupt a wait that holds the event's lock.
        signal.signal(number, lambda _number, _frame: threading.Thread(target=stop.set).start())
    try:
        run_worker(settings, stop=stop)
    except CheckpointsUnusable as error:
        logger.error("%s", error)
        sys.exit(1)
    except DatabaseOfAnotherVersion as error:
        logger.error("the worker ends: %s", error)
        sys.exit(1)
    except DATABASE_ERRORS as error:
        if not is_unavailable(error):
            raise
        logger.error("the worker ends: %s: %s", why_it_fails(error), getattr(error, "orig", error))
        sys.exit(1)


if __name__ == "__main__":
    main()
