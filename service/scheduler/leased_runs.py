"""The runs of leased jobs: each has a process of its own, with its files, and its job is released at the end."""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import psutil

from service.checkpoint_files import weights_of
from service.domain import JobState
from service.monitoring.logs import bound
from service.scheduler import disk
from service.scheduler.checkpoint_storage import checkpoint_bytes, checkpoints_of
from service.scheduler.cluster import process_tree
from service.scheduler.external import beside as external_runs
from service.scheduler.external.beside import ExternalRuns
from service.scheduler.kept_weights import keep_winners
from service.scheduler.launcher import Launcher, RunProcess
from service.scheduler.output.on_this_machine import local_keeper
from service.scheduler.removal import remove_what_jobs_left
from service.scheduler.run_process import describe_crash, held_pipe, make_directory, start_run, supervise
from service.scheduler.tune.run_end import ExitStatus
from service.settings import Settings
from service.store.retry import write_with_retries
from service.store.session import DATABASE_ERRORS, Database
from service.use_cases.leases import Lease, note_disk_use, release_job
from trainers.storage import StoreFailed

T = TypeVar("T")

logger = logging.getLogger(__name__)

WORKER_OUTAGE_SECONDS = 3600.0
"""Seconds that the database may be unreachable before the worker gives up: enough for a restart, or a move to another
machine."""
HOUSEKEEPING_SECONDS = 10.0
"""Seconds between two checks of the files of a run."""


@dataclass(frozen=True, slots=True)
class WorkerWrites:
    """Writes through outages of the database, until the worker has to stop."""

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


@dataclass(frozen=True, slots=True)
class LeasedRuns:
    """Runs leased jobs of a worker, and gives a job back if its process did not finish it."""

    settings: Settings
    write: WorkerWrites
    stop: threading.Event
    """Set when the worker and its runs have to stop."""
    launcher: Launcher | None
    """The process that runs are forked from; None: they start as new interpreters."""
    external: ExternalRuns
    """The runs of external jobs, which run in addition to the worker's own."""

    @property
    def database(self) -> Database:
        return self.write.database

    def run(self, lease: Lease, *, is_external: bool = False) -> None:
        """Runs a job to the end of its process.

        Args:
            is_external: whether its trials are trained by others.
        """
        with bound(job=lease.job_id, attempt=lease.attempt):
            self._run(lease, is_external=is_external)

    def _run(self, lease: Lease, *, is_external: bool) -> None:
        logger.info("runs job %s (claim %d)", lease.job_id, lease.attempt)
        try:
            status, how = self._run_to_its_end(lease, is_external=is_external)
        except OSError as error:  # no space for files or no memory for a process: the next attempt may succeed
            status, how = None, f"it could not be started: {error}"
        crash = None if self.stop.is_set() or status == ExitStatus.CUT_SHORT else how
        state = self.write(lambda session: release_job(session, lease, now=self.database.now(), crash=crash))
        if crash is not None and status != ExitStatus.IN_ORDER:
            is_written = state in (JobState.SUCCEEDED, JobState.CANCELLED)
            when = " after the job's end" if is_written else ""
            logger.warning("the run of job %s crashed%s: %s", lease.job_id, when, crash)
        logger.info("job %s is %s", lease.job_id, state or "deleted")
        remove_what_jobs_left(self.database, self.settings)

    def _run_to_its_end(self, lease: Lease, *, is_external: bool) -> tuple[int, str]:
        """The exit status of a run's process, and the known details of its end if it was a crash.

        Raises:
            OSError: the process, or the files it needs, could not be created.
        """
        log = disk.log_of(self.settings.data_dir, lease.job_id)
        disk.begin_log(log)
        directory = make_directory()
        others = process_tree.descendants()
        output_keeper = local_keeper(self.settings, self.database, lease.job_id)
        log_start = log.stat().st_size if log.exists() else 0
        ended = threading.Event()
        housekeeping = threading.Thread(
            target=self._keep_house, args=(lease.job_id, directory, ended), name="housekeeping"
        )
        housekeeping.start()
        if output_keeper is not None:
            output_keeper.start()
        try:
            with log.open("ab") as output, held_pipe() as stdin:
                start = self._start_external if is_external else self._start
                status = supervise(start(lease, directory, stdin=stdin, output=output.fileno()), self.stop)
        finally:
            if not is_external:  # it starts nothing
                process_tree.end(lambda: process_tree.descendants() - others - self._lasting())
            shutil.rmtree(directory, ignore_errors=True)
            if output_keeper is not None:
                output_keeper.close()
            ended.set()
            housekeeping.join()
        return status, describe_crash(status, log, log_start)

    def _lasting(self) -> set[psutil.Process]:
        """The processes that may have been started meanwhile, and are not this run's."""
        launcher = set() if self.launcher is None else self.launcher.process()
        return launcher | self.external.processes()

    def _start(self, lease: Lease, directory: Path, *, stdin: int, output: int) -> RunProcess:
        return start_run(lease, self.settings, directory, stdin=stdin, output=output, launcher=self.launcher)

    def _start_external(self, lease: Lease, directory: Path, *, stdin: int, output: int) -> RunProcess:
        with self.external.starting() as note:
            run = start_run(
                lease,
                self.settings,
                directory,
                stdin=stdin,
                output=output,
                launcher=None,
                module=external_runs.MODULE,
            )
            note(run.pid)
        return run

    def _keep_house(self, job_id: str, directory: Path, ended: threading.Event) -> None:
        """Stores a job's disk use and removes useless files, repeatedly until its run has ended, and once more after
        that."""
        is_last, checkpoints = False, checkpoints_of(self.settings.checkpoint_place, job_id)
        weights = weights_of(self.settings.checkpoint_place, job_id)
        while not is_last:
            is_last = ended.wait(HOUSEKEEPING_SECONDS)
            try:
                disk.remove_logs_of_ended_processes(directory)
                if is_last:
                    keep_winners(self.database, self.settings.checkpoint_place, job_id)
                num_bytes = checkpoint_bytes(weights) + disk.disk_bytes(
                    self.settings.data_dir, job_id, checkpoints=checkpoints, run_directory=directory
                )
                with self.database.writing() as session:
                    note_disk_use(session, job_id, num_bytes)
            except (OSError, StoreFailed, *DATABASE_ERRORS) as error:
                logger.warning("cannot look after the files of job %s: %s", job_id, getattr(error, "orig", error))
