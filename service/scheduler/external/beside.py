"""The runs of external jobs that a worker has in addition to its own: they need no device, so several run at once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil

from service.store.migrate import DatabaseOfAnotherVersion
from service.store.repositories import JobRepository
from service.store.session import DATABASE_ERRORS, Database, Session
from service.use_cases.leases import EXTERNAL_JOBS_AT_ONCE, Lease, claim_job

logger = logging.getLogger(__name__)

MODULE = "service.scheduler.external.run"


class ExternalRuns:
    """Claims external jobs and runs each in a thread, which starts a process and waits for it."""

    def __init__(
        self,
        database: Database,
        worker_id: str,
        *,
        lease_seconds: float,
        poll_seconds: float,
        write: Callable[[Callable[[Session], Lease | None]], Lease | None],
        run: Callable[[Lease], None],
        stop: threading.Event,
        may_claim: Callable[[], bool] = lambda: True,
    ) -> None:
        """Prepares; `start` begins.

        Args:
            write: does something in a transaction, through outages of the database.
            run: runs a leased job to its end.
            may_claim: asked before each claim.
        """
        self._database = database
        self._worker_id = worker_id
        self._lease_seconds = lease_seconds
        self._poll_seconds = poll_seconds
        self._write = write
        self._run = run
        self._stop = stop
        self._may_claim = may_claim
        self._running: dict[str, threading.Thread] = {}
        self._processes: set[psutil.Process] = set()
        self._starting = threading.Lock()
        self._claiming = threading.Thread(target=self._keep_claiming, name="claim-external")

    def start(self) -> None:
        self._claiming.start()

    def join(self) -> None:
        """Returns when all have ended; called when the worker has to stop."""
        self._claiming.join()
        for thread in list(self._running.values()):
            thread.join()

    @contextmanager
    def starting(self) -> Iterator[Callable[[int], None]]:
        """Context for starting a process; call the given function with its id. So nobody takes the process for a
        leftover of a run."""
        with self._starting:
            yield lambda pid: self._processes.add(psutil.Process(pid))

    def processes(self) -> set[psutil.Process]:
        """The processes of these runs; ended ones may be among them."""
        with self._starting:
            self._processes = {process for process in self._processes if process.is_running()}
            return set(self._processes)

    def _keep_claiming(self) -> None:
        sees = True
        while not self._stop.is_set():
            self._running = {job_id: thread for job_id, thread in self._running.items() if thread.is_alive()}
            try:
                lease = self._claim() if len(self._running) < EXTERNAL_JOBS_AT_ONCE and self._may_claim() else None
                sees = True
            except (DatabaseOfAnotherVersion, *DATABASE_ERRORS) as error:
                if sees:  # once, not at every attempt during a long outage
                    logger.warning("cannot see whether an external job waits: %s", error)
                lease, sees = None, False
            if lease is None:
                self._stop.wait(self._poll_seconds)
                continue
            thread = threading.Thread(target=self._run, args=(lease,), name=f"external-{lease.job_id}")
            self._running[lease.job_id] = thread
            thread.start()

    def _claim(self) -> Lease | None:
        now = self._database.now()
        with self._database.reading() as session:
            if not JobRepository(session).external_waits(now):
                return None
        running = list(self._running)
        return self._write(
            lambda session: claim_job(
                session, self._worker_id, lease_seconds=self._lease_seconds, now=now, running=running, external=True
            )
        )
