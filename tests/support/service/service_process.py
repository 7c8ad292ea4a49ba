"""A database, jobs in it, and real worker processes, for tests that look at them from outside."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pytest
from sqlalchemy import text

from service.domain import DEFAULT_PROJECT, JobState, TrialState
from service.specification.job import JobSpecification
from service.store.models import ClusterShare, Job, Trial
from service.store.repositories import EventRepository, JobRepository, TrialRepository
from service.store.session import Database
from service.use_cases.steer import cancel_job
from service.use_cases.submit import create_job
from tests.support.waiting import PATIENCE_SECONDS, wait_until

LAUNCHER = "service.scheduler.launcher"
NO_CLUSTER = "127.0.0.1:1"
"""The `RAY_ADDRESS` of a worker that runs no job: for a cluster that is there already it imports half as much ahead."""
PLUGIN = Path(__file__).parent / "plugin"
WRONG_CLOCK = Path(__file__).parent / "wrong_clock"
"""A directory whose `sitecustomize` puts the clock of Python processes forward or back."""


@dataclass
class ServiceProcesses:
    """The worker side of a service, without its API."""

    database: Database
    data_dir: Path
    lease_seconds: float = 10.0
    """Short, because tests wait for its end; but longer than a busy machine may delay a worker's renewal."""
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def slowly(self, seconds_per_step: float) -> dict[str, Any]:
        """Options of a workload whose steps take this long until `hurry` is called."""
        return {"seconds_per_step": seconds_per_step, **self.until_hurry()}

    def until_hurry(self) -> dict[str, Any]:
        """Options of a workload whose slow steps, if any, end when `hurry` is called."""
        return {"hurry_file": str(self.data_dir / "hurry")}

    def hurry(self) -> None:
        """Lets trials that were slow, to give a test time, continue at full speed."""
        (self.data_dir / "hurry").touch()

    def settle(self) -> None:
        """Prepares the next test: ends all remaining jobs, and makes slow trials of later jobs slow again."""
        with self.database.reading() as session:
            left = [job.id for job in JobRepository(session).page(project=None, limit=1000) if not job.state.is_final]
        for job_id in left:
            self.cancel(job_id)
        self.wait_for("no process but the worker", lambda: not self.processes_of_runs())
        (self.data_dir / "hurry").unlink(missing_ok=True)

    def start_worker(self, *, seconds_ahead: float = 0.0) -> subprocess.Popen[bytes]:
        """A new worker; `seconds_ahead`: its clock is off by this much, as on another machine."""
        off_by = {"TEST_SECONDS_AHEAD": str(seconds_ahead)} if seconds_ahead else {}
        environment = {
            **os.environ,
            **off_by,
            "PYTHONPATH": os.pathsep.join(map(str, [PLUGIN, *([WRONG_CLOCK] if off_by else [])])),
            "SHAMPOO_TUNER_DATA_DIR": str(self.data_dir),
            "SHAMPOO_TUNER_DATABASE_URL": self.database.url,
            "SHAMPOO_TUNER_LEASE_SECONDS": str(self.lease_seconds),
            "SHAMPOO_TUNER_WEBHOOK_PRIVATE_ADDRESSES": "true",
        }
        with (self.data_dir / "worker.log").open("ab") as log:
            worker = subprocess.Popen(
                [sys.executable, "-m", "service.scheduler.worker"], env=environment, stdout=log, stderr=log
            )
        self.workers.append(worker)
        return worker

    def submit(self, specification: Mapping[str, Any], *, priority: int = 0) -> str:
        with self.database.writing() as session:
            job, _ = create_job(
                session,
                JobSpecification.model_validate(specification),
                name=None,
                tags={},
                project=DEFAULT_PROJECT,
                owner=None,
                priority=priority,
                idempotency_key=None,
                now=datetime.now(UTC),
            )
            return job.id

    def cancel(self, job_id: str) -> None:
        with self.database.writing() as session:
            cancel_job(session, job_id, now=datetime.now(UTC))

    def job(self, job_id: str) -> Job:
        with self.database.reading() as session:
            return JobRepository(session).get(job_id)

    def trials(self, job_id: str) -> list[Trial]:
        """The trials by number, with their measurements."""
        with self.database.reading() as session:
            return TrialRepository(session).with_measurements(job_id)

    def num_finished(self, job_id: str) -> int:
        return sum(trial.state.is_final for trial in self.trials(job_id))

    def num_groups(self, job_id: str) -> int:
        """The rank groups that the job's run has on a cluster that it shares."""
        with self.database.reading() as session:
            share = session.get(ClusterShare, job_id)
            return 0 if share is None else share.num_groups

    def waits(self, job_id: str) -> list[str | None]:
        """The reasons for waiting that the job's run has reported, one after the other; None: it no longer waits."""
        with self.database.reading() as session:
            events = EventRepository(session).after(0, project=None, job_id=job_id, limit=1_000_000)
            return [event.data["waiting_for"] for event in events if event.kind == "job.changed"]

    def wait_for(self, what: str, condition: Callable[[], bool], *, seconds: float = PATIENCE_SECONDS) -> None:
        """Waits until `condition` holds. Fails with the logs if it takes too long."""
        wait_until(condition, what, seconds=seconds, more=self.logs)

    def finish(self, job_id: str, *, seconds: float = PATIENCE_SECONDS) -> tuple[Job, list[Trial]]:
        """Waits for a job's end; the job and its trials."""
        self.wait_for(f"the end of {job_id}", lambda: self.job(job_id).state.is_final, seconds=seconds)
        return self.job(job_id), self.trials(job_id)

    @contextmanager
    def end_held_up(self) -> Iterator[None]:
        """Makes a run wait in the middle of writing its job's end, which it has begun when the block is entered.

        On PostgreSQL only. No job may end while this waits for one.
        """
        with self.database.engine.connect() as connection:
            connection.execute(text("LOCK TABLE recommendations IN EXCLUSIVE MODE"))  # nothing else writes there
            self.wait_for("the end of a job to be written", self._waits_for_a_table)
            yield

    def _waits_for_a_table(self) -> bool:
        with self.database.engine.connect() as connection:
            waiting = text("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation IS NOT NULL)")
            return bool(connection.scalar(waiting))

    def logs(self) -> str:
        files = [self.data_dir / "worker.log", *sorted((self.data_dir / "logs").glob("*.log"))]
        return "\n".join(f"--- {file.name}\n{file.read_text()[-6000:]}" for file in files if file.exists())

    def processes(self) -> list[psutil.Process]:
        """Every process that this service or one of its processes has started, in any session."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                if process.environ().get("SHAMPOO_TUNER_DATA_DIR") == str(self.data_dir):
                    found.append(process)
        return found

    def launchers(self) -> list[psutil.Process]:
        """The launchers of the workers."""
        workers = {worker.pid for worker in self.workers}
        return [process for process in self.processes() if _is_launcher(process, workers)]

    def processes_of_runs(self) -> list[psutil.Process]:
        """The processes that are neither a worker nor its launcher."""
        workers = {worker.pid for worker in self.workers}
        return [
            process for process in self.processes() if process.pid not in workers and not _is_launcher(process, workers)
        ]

    def run_process(self) -> psutil.Process:
        """The process of the job's run."""
        [run] = filter(is_run, self.processes())
        return run

    def rank_processes(self) -> list[psutil.Process]:
        return [process for process in self.processes() if _name(process).startswith("ray::Rank")]

    def directories(self) -> list[Path]:
        """Temporary directories of this service's workers."""
        return [d for worker in self.workers for d in Path("/tmp").glob(f"shampoo-{worker.pid}-*")]

    def close(self) -> None:
        """Ends all workers, and anything else that a failed test may have left."""
        for worker in self.workers:
            worker.terminate()
            worker.send_signal(signal.SIGCONT)
        try:
            for worker in self.workers:
                worker.wait(PATIENCE_SECONDS)
        finally:
            for process in self.processes():
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            for worker in self.workers:
                worker.wait()


@contextmanager
def lasting(migrated_file: Path, directory: Path, *, num_workers: int = 1) -> Iterator[ServiceProcesses]:
    """A service with workers, for several tests: a worker's start and first job cost more than later jobs.

    Args:
        migrated_file: an SQLite database without rows, to be copied.
        directory: for its data, empty.
    """
    path = directory / "service.sqlite3"
    shutil.copyfile(migrated_file, path)
    database = Database(f"sqlite:///{path}")
    service = ServiceProcesses(database, directory)
    try:
        for _ in range(num_workers):
            service.start_worker()
        yield service
    finally:
        service.close()
        database.close()


def for_one_test(service: ServiceProcesses, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServiceProcesses]:
    """A shared service, for one test: it knows the troubled workload, and afterwards no job is unfinished and only the
    worker's processes are left."""
    monkeypatch.syspath_prepend(PLUGIN)
    yield service
    service.settle()


def is_run(process: psutil.Process) -> bool:
    """True for the process of a job's run; a child of one shows the same command line until it has its
    own."""
    with suppress(psutil.NoSuchProcess):
        parent = process.parent()
        return _names_a_run(process) and (parent is None or not _names_a_run(parent))
    return False


def _is_launcher(process: psutil.Process, workers: Set[int]) -> bool:
    """True for the launcher of one of these workers; its forks show the same command line."""
    with suppress(psutil.NoSuchProcess):
        return process.ppid() in workers and LAUNCHER in process.cmdline()
    return False


def _name(process: psutil.Process) -> str:
    """The name of a process, empty once it has ended."""
    with suppress(psutil.NoSuchProcess):
        return process.name()
    return ""


def _names_a_run(process: psutil.Process) -> bool:
    return "service.scheduler.job_run" in " ".join(process.cmdline())


def states(trials: list[Trial]) -> list[TrialState]:
    return [trial.state for trial in trials]


def is_running(service: ServiceProcesses, job_id: str) -> bool:
    return service.job(job_id).state is JobState.RUNNING
