"""The thread of a job's run that computes and stores the insights from its trials.

It computes them again when a tenth more trials have ended, and at the end of the job, and takes only a small share of
the run's time. Errors in it are only logged: no job fails because of it.
"""

from __future__ import annotations

import logging
import threading
import time

from service.clock import Clock, utc_now
from service.errors import LeaseLost, NotFound
from service.evidence.insights import MIN_TRIALS
from service.scheduler.insights.of_job import insights_of, read_ended
from service.store.repositories import InsightsRepository
from service.store.session import DATABASE_ERRORS, Database
from service.use_cases.leases import Lease
from service.use_cases.run import store_insights

logger = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
"""Time between two checks of how many trials have ended."""
GROWTH = 1.1
"""Factor by which the number of ended trials must have grown since the last insights."""
TIME_SHARE = 0.05
"""Share of a run's time that insights may take."""


class InsightsKeeper:
    """Keeps the insights of one job up to date during one run of it."""

    def __init__(self, database: Database, lease: Lease, *, clock: Clock = utc_now) -> None:
        self._database = database
        self._lease = lease
        self._clock = clock
        self._num_told: int | None = None
        """The number of trials of the last insights; None: not looked up yet."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="insights", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread, without waiting for it: the lease protects against late writes."""
        self._ended.set()

    def close(self) -> None:
        """Ends the thread and stores the last insights; call it while the job still belongs to this run."""
        self.stop()
        self._thread.join()
        self.look(is_last=True)

    def _run(self) -> None:
        pause = LOOK_SECONDS
        while not self._ended.wait(pause):
            pause = max(LOOK_SECONDS, self.look() / TIME_SHARE)

    def look(self, *, is_last: bool = False) -> float:
        """Stores new insights if enough trials have ended; returns the seconds that it took.

        Args:
            is_last: whether a single newly ended trial is enough.
        """
        began = time.monotonic()
        try:
            self._look(is_last)
        except LeaseLost:
            self._ended.set()
        except (NotFound, *DATABASE_ERRORS) as error:
            logger.warning("what the trials of job %s tell cannot be stored now: %s", self._lease.job_id, error)
        except Exception:  # insights must never end a run
            logger.exception("what the trials of job %s tell could not be computed", self._lease.job_id)
        return time.monotonic() - began

    def _look(self, is_last: bool) -> None:
        job_id = self._lease.job_id
        with self._database.reading() as session:
            repository = InsightsRepository(session)
            if self._num_told is None:
                stored = repository.of_job(job_id)
                self._num_told = 0 if stored is None else stored.insights.num_ended
            num_ended = repository.num_ended(job_id)
            is_enough = num_ended >= max(MIN_TRIALS, GROWTH * self._num_told)
            is_new = num_ended != self._num_told or (is_last and bool(repository.confirmed(job_id)))
            if not is_new or not (is_enough or is_last):
                return
            ended = read_ended(session, job_id)
        insights = insights_of(ended)
        with self._database.writing() as session:
            store_insights(session, self._lease, insights, now=self._clock())
        self._num_told = insights.num_ended
