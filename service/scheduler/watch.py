"""The watch over a run, in threads: it ends the run early for its worker, lease, cluster, a user or the time."""

from __future__ import annotations

import logging
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import psutil

from service.access.quotas import hours_are_spent
from service.errors import NotFound
from service.scheduler.cluster import process_tree
from service.scheduler.disk import Room
from service.scheduler.tune.run_end import Ending, ExitStatus
from service.store.repositories import JobRepository, TrialRepository
from service.store.session import Database
from service.use_cases.leases import Lease

logger = logging.getLogger(__name__)

PATIENCE_SECONDS = 8.0
"""Seconds that a run may take to end cleanly once it was told to, before its process is killed."""
LEAVING_SECONDS = 15.0
"""Seconds that a run may take to leave Ray once its ranks are stopped, before its process is ended."""
CLUSTER_POLL_SECONDS = 2.0
"""Seconds between two checks that the run's machine is still part of its Ray cluster."""
VITAL_PROCESSES = ("gcs_server", "raylet")
"""Names of the processes that a Ray cluster cannot do without; a run's own has one of each."""
PROCESS_POLL_SECONDS = 0.2
"""Seconds between two checks that the processes of the run's own Ray cluster are alive."""


class Watch:
    """Watches from threads whether the run must end early."""

    def __init__(self, database: Database, lease: Lease, *, poll_seconds: float, room: Room | None = None) -> None:
        """Prepares; `start` begins.

        Args:
            room: the room on the disks that the run writes to; None: not checked.
        """
        self._room = room
        self._database = database
        self._lease = lease
        self._poll_seconds = poll_seconds
        self._told: Ending | None = None
        self._deadline: float | None = None
        self._allowed_seconds: float | None = None
        self._quota_is_spent = False
        self._to_stop: frozenset[int] = frozenset()
        self._is_starting_ray = False
        self._leaving = threading.Event()
        self._finishing = threading.Event()
        self._cluster_watch = threading.Thread(target=self._watch_cluster, name="watch-cluster", daemon=True)

    def start(self) -> None:
        threading.Thread(target=self._watch_worker, name="watch-worker", daemon=True).start()
        threading.Thread(target=self._watch_lease, name="watch-lease", daemon=True).start()

    def start_for_cluster(self) -> None:
        """Watches the connected Ray cluster too, until `stop_for_cluster`."""
        self._is_starting_ray = False
        self._cluster_watch.start()

    def start_for_processes(self) -> None:
        """Watches the processes of a Ray cluster that this one is about to start, until `stop_for_cluster`.

        Until `start_for_cluster`, a run that is told to end does so at once: it has nothing to lose, and Ray cannot be
        interrupted while it starts, which takes too long on a busy machine.
        """
        self._is_starting_ray = True
        threading.Thread(target=self._watch_processes, name="watch-processes", daemon=True).start()

    def stop_for_cluster(self) -> None:
        """Stops watching the cluster. To be called before the process leaves it: asking Ray afterwards would start
        another."""
        self._is_starting_ray = False
        self._leaving.set()
        if self._cluster_watch.is_alive():
            self._cluster_watch.join(timeout=CLUSTER_POLL_SECONDS)

    def stop_for_lease(self) -> None:
        """Stops watching the lease. To be called before the run gives it up by finishing the job."""
        self._finishing.set()

    def end_on_sigterm(self) -> None:
        """Notes the signal, from a thread of its own: a handler may interrupt code that holds a lock."""
        signal.signal(
            signal.SIGTERM, lambda _number, _frame: threading.Thread(target=self.end, args=[Ending.STOPPED]).start()
        )

    def limit(self, seconds: float) -> None:
        """Ends the run after so many seconds from now."""
        self._deadline = time.monotonic() + seconds

    def limit_by_quota(self) -> None:
        """Ends the run now, as the device-hours of its project are spent."""
        self._quota_is_spent = True
        self.limit(0.0)

    def limit_training(self, seconds: float) -> None:
        """Ends the run when the job's trials have trained for this many seconds in total, according to SQL."""
        self._allowed_seconds = seconds

    def look_for_room(self) -> None:
        """Ends the run if a disk that it writes to is full: its trials continue from there once there is room."""
        why_none = None if self._room is None else self._room.why_none()
        if why_none is not None:
            logger.warning("there is no room: %s", why_none)
            self.end(Ending.NO_ROOM)

    def to_stop(self) -> frozenset[int]:
        """The trials that a user has asked to stop."""
        return self._to_stop

    @property
    def is_told(self) -> bool:
        """True if the run was told to end, so its end is not a crash; not if only its time is up."""
        return self._told is not None

    def seconds_left(self) -> float:
        """Seconds until the run is ended by the time limit; infinite without one."""
        return math.inf if self._deadline is None else self._deadline - time.monotonic()

    def ending(self) -> Ending | None:
        """The reason for which the run ends, if there is one."""
        if self._told is None and self._deadline is not None and time.monotonic() >= self._deadline:
            return Ending.QUOTA_SPENT if self._quota_is_spent else Ending.BUDGET_SPENT
        return self._told

    def end(self, ending: Ending) -> None:
        """Tells the run to end, and ends its process if it does not."""
        if self._told is None:
            self._told = ending
            logger.info("the run of job %s ends: %s", self._lease.job_id, ending)
            if self._is_starting_ray:
                end_at_once(status=ExitStatus.CUT_SHORT)
            _end_after(PATIENCE_SECONDS, status=ExitStatus.CUT_SHORT)

    def _watch_worker(self) -> None:
        while os.read(sys.stdin.fileno(), 1024):  # the worker writes nothing; this ends when it is gone
            pass
        self.end(Ending.STOPPED)

    def _watch_lease(self) -> None:
        sees = True
        while self._told is None and not self._finishing.wait(self._poll_seconds):
            try:
                ending = self._look()
            except NotFound:
                ending = Ending.LEASE_LOST
            except Exception:  # a thread's boundary: the next look may succeed, and writes have a fence
                if sees:  # once, not at every attempt during a long outage
                    logger.exception("cannot see whether the lease is still held")
                sees = False
                continue
            sees = True
            if ending is not None and not self._finishing.is_set():
                self.end(ending)

    def _look(self) -> Ending | None:
        """The reason for which the run must end, according to SQL. Raises: NotFound."""
        with self._database.reading() as session:
            job, trials = JobRepository(session).get(self._lease.job_id), TrialRepository(session)
            if not self._lease.is_held_on(job):
                return Ending.LEASE_LOST
            if job.requested is not None:
                return Ending.ASKED
            self._to_stop = frozenset(trials.numbers_to_stop(job.id))
            if self._allowed_seconds is not None and trials.spent_seconds(job.id) >= self._allowed_seconds:
                self.limit(0.0)
            elif hours_are_spent(session, job.project):
                self.limit_by_quota()
        return None

    def _watch_processes(self) -> None:
        """Ends a run whose own raylet or head died, at once: Ray itself waits a minute for a head to come back."""
        vital: set[psutil.Process] = set()
        while not self._leaving.wait(PROCESS_POLL_SECONDS):
            if len(vital) < len(VITAL_PROCESSES):  # only until then: it goes through all processes of the machine
                vital |= process_tree.children_named(*VITAL_PROCESSES)
            if process_tree.any_is_gone(vital) and not (self._leaving.is_set() or self.is_told):
                logger.error("a process of the Ray cluster died; job %s starts anew", self._lease.job_id)
                end_at_once(status=ExitStatus.CRASHED)

    def _watch_cluster(self) -> None:
        """Ends a run whose raylet died: Tune would wait forever for resources. The worker starts it again."""
        # It imports Ray, which a run without devices does not need.
        from service.scheduler.cluster import ray_cluster

        while not self._leaving.wait(CLUSTER_POLL_SECONDS):
            try:
                lost = ray_cluster.own_machine_is_lost()
            except Exception:  # a thread's boundary: a run without its cluster's head is ended by Ray after a minute
                logger.exception("cannot see whether the cluster is well")
                continue
            if lost and not self._leaving.is_set():
                logger.error("the Ray cluster has lost the machine of this run; job %s starts anew", self._lease.job_id)
                end_at_once(status=ExitStatus.CRASHED)


@contextmanager
def at_most(seconds: float, *, status: ExitStatus) -> Iterator[None]:
    """Ends the process with this status if what is done within takes longer."""
    timer = _end_after(seconds, status=status)
    try:
        yield
    finally:
        timer.cancel()


def _end_after(seconds: float, *, status: ExitStatus) -> threading.Timer:
    def end() -> None:
        logger.warning("the run does not end by itself within %g s", seconds)
        end_at_once(status=status)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    return timer


_ENDING_AT_ONCE = threading.Lock()


def end_at_once(*, status: ExitStatus) -> NoReturn:
    """Ends this process and all it started, without Ray's own shutdown, which can wait for busy ranks.

    The first thread that calls it decides the status: others may only call it because the first one has ended Ray's
    processes.
    """
    _ENDING_AT_ONCE.acquire()
    process_tree.end_descendants()
    logging.shutdown()
    os._exit(status)
