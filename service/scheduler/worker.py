"""The worker: claims jobs by lease, keeps the leases, and runs each job in a process of its own (`leased_runs`).

`python -m service.scheduler.worker`. It loads neither torch nor Ray, so whatever a run does cannot disturb its leases.
SIGTERM and SIGINT end it: the run is stopped and its job goes back to the queue.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from service.monitoring.logs import set_up_logs
from service.scheduler.abandoned import end_abandoned_runs, remove_abandoned_directories
from service.scheduler.checkpoint_storage import CheckpointsUnusable, try_out
from service.scheduler.cluster import worker_template
from service.scheduler.cluster.run_environment import run_environment
from service.scheduler.disk import Room
from service.scheduler.external.beside import ExternalRuns
from service.scheduler.kept_weights import keep_winners_of_all
from service.scheduler.launcher import Launcher
from service.scheduler.leased_runs import LeasedRuns, WorkerWrites
from service.scheduler.output.on_this_machine import keep_what_was_left
from service.scheduler.removal import keep_removing, keep_thinning, remove_what_jobs_left
from service.settings import ENV_PREFIX, Settings
from service.store.migrate import DatabaseOfAnotherVersion
from service.store.session import DATABASE_ERRORS, Database, is_unavailable
from service.store.writes import why_it_fails
from service.use_cases.leases import (
    BEATS_PER_LEASE,
    Lease,
    beat,
    claim_job,
    end_worker,
    register_worker,
)
from service.webhooks.delivering import keep_delivering
from trainers.processes.orphans import adopt_orphans
from trainers.storage import masked

logger = logging.getLogger(__name__)


def run_worker(settings: Settings, *, stop: threading.Event) -> None:
    """Runs jobs, one at a time, until `stop` is set.

    Call it in a process of its own: it kills every process that a run leaves behind.

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
    write = WorkerWrites(database, stop)
    pid = os.getpid()
    write(lambda session: session.connection())  # from then on the database's clock is known
    worker_id = write(
        lambda session: register_worker(
            session, host=socket.gethostname(), pid=pid, allows_code=settings.allow_code, now=database.now()
        )
    )
    remove_what_jobs_left(database, settings)
    keep_winners_of_all(database, settings.checkpoint_place)
    keep_what_was_left(settings, database)
    # The representation of an engine's URL shows no password.
    cluster = settings.cluster_address
    where = "" if cluster is None else f" on the Ray cluster at {cluster}"
    logger.info("worker %s runs jobs of %r%s", worker_id, database.engine.url, where)
    gone = threading.Event()
    helpers = _helpers(database, worker_id, settings, gone)
    for helper in helpers:
        helper.start()
    launcher, room = _launcher(settings), Room(settings)
    external = ExternalRuns(
        database,
        worker_id,
        lease_seconds=settings.lease_seconds,
        poll_seconds=settings.poll_seconds,
        write=write,
        run=lambda lease: _run_external(runs, lease),
        stop=stop,
        may_claim=room.is_there,
    )
    runs = LeasedRuns(settings, write, stop, launcher, external)
    external.start()
    try:
        while not stop.is_set():
            lease = None
            if room.is_there():
                lease = write(
                    lambda session: claim_job(
                        session, worker_id, lease_seconds=settings.lease_seconds, now=database.now(), external=False
                    )
                )
            if lease is None:
                stop.wait(settings.poll_seconds)
            else:
                runs.run(lease)
    finally:
        stop.set()  # also if an error ends the worker: these runs end with it
        external.join()
        if launcher is not None:
            launcher.close()
        gone.set()
        for helper in helpers:
            helper.join()
        _deregister(database, worker_id)
        database.close()


def _run_external(runs: LeasedRuns, lease: Lease) -> None:
    # Once the database has another version, the next claim ends the worker with a message.
    with suppress(DatabaseOfAnotherVersion):
        runs.run(lease, is_external=True)


def _helpers(database: Database, worker_id: str, settings: Settings, gone: threading.Event) -> list[threading.Thread]:
    """The threads of a worker in addition to its runs; they end once `gone` is set."""
    tasks: dict[str, Callable[[], None]] = {
        "heartbeat": lambda: keep_beating(database, worker_id, settings, gone),
        "removal": lambda: keep_removing(database, settings, gone=gone, clock=database.now),
        "webhooks": lambda: keep_delivering(
            database, allows_private=settings.webhook_private_addresses, gone=gone, clock=database.now
        ),
    }
    days = settings.thin_after_days
    if days is not None:
        tasks["retention"] = lambda: keep_thinning(database, after_days=days, gone=gone, clock=database.now)
    return [threading.Thread(target=task, name=name) for name, task in tasks.items()]


def keep_beating(database: Database, worker_id: str, settings: Settings, gone: threading.Event) -> None:
    """Renews the leases of a worker until `gone` is set, through outages of the database."""
    beats = True
    while not gone.is_set():
        try:
            with database.writing() as session:
                beat(session, worker_id, lease_seconds=settings.lease_seconds, now=database.now())
            beats = True
        except Exception as error:  # a thread's boundary: the next beat may succeed; if none does, the lease expires
            if beats:  # once, not at every beat during a long outage
                trace = None if isinstance(error, DATABASE_ERRORS) else error
                logger.warning("the heartbeat failed: %s", getattr(error, "orig", error), exc_info=trace)
            beats = False
        gone.wait(settings.lease_seconds / BEATS_PER_LEASE)


def _deregister(database: Database, worker_id: str) -> None:
    """Tells other processes that this worker is gone; if the database fails, they notice when it has been silent for
    some time."""
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
