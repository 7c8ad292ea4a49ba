"""A job whose trials clients train, and its run, turn by turn or in a thread of the test."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from service.clock import Clock, utc_now
from service.domain import JobState
from service.scheduler.external.run import make_serving
from service.scheduler.external.serving import Serving
from service.scheduler.stored_job import plan_of, read_stored
from service.scheduler.tune.run_end import Ending, JobImpossible, RunEnded
from service.settings import Settings
from service.store.models import Trial
from service.store.repositories import JobRepository, TrialRepository
from service.store.session import Database
from service.use_cases.leases import Lease, release_job
from service.use_cases.run import finish_job
from tests.support.service.scenarios import add_worker, claim, submit
from tests.support.service.searching.tune_calls import ToldSignals

FIELDS: dict[str, Any] = {
    "workload": {"name": "external"},
    "external": {"lease_seconds": 60.0, "metrics": {"validation_loss": "minimize"}},
    "search_space": {
        "optimizer": "shampoo",
        "parameters": [
            {"type": "float", "name": "lr", "low": 1e-4, "high": 1e-1, "scale": "log"},
            {"type": "float", "name": "workload.dropout", "low": 0.0, "high": 0.5},
        ],
    },
    "training": {"num_steps": 10},
    "budget": {"num_trials": 4},
    "baselines": [],
    "confirmation": None,
    "sampler": {"name": "random"},
    "pruner": {"name": "none"},
}


def submit_external(database: Database, **fields: Any) -> str:
    """The id of a new job of four trials of ten steps."""
    return submit(database, **{**FIELDS, **fields})


def trials_of(database: Database, job: str) -> list[Trial]:
    """The trials of a job, with their measurements."""
    with database.reading() as session:
        return TrialRepository(session).with_measurements(job)


def state_of(database: Database, job: str) -> JobState:
    """Of a job."""
    with database.reading() as session:
        return JobRepository(session).get(job).state


class Run:
    """The run of the next job; the test calls its turns. Dropping it is like killing it."""

    def __init__(self, database: Database, *, clock: Clock = utc_now) -> None:
        lease = claim(database, add_worker(database, now=clock()), now=clock())
        assert lease is not None
        self.lease: Lease = lease
        self.signals = ToldSignals()
        self._database = database
        self._clock = clock
        stored = read_stored(database, lease)
        self.serving: Serving = make_serving(
            database,
            lease,
            stored,
            plan_of(stored.job, Settings()),
            self.signals,
            checkpoints=Path("unused"),
            clock=clock,
        )
        self.serving.begin()
        self.state = JobState.RUNNING
        """The job's state after the last turn."""

    def turn(self) -> JobState:
        """Takes a turn, and finishes the run if the turn ends it; returns the job's state."""
        failure = None
        if self.state.is_final:
            return self.state
        try:
            self.serving.turn()
            return self.state
        except JobImpossible as error:
            failure = str(error)
        except RunEnded as ended:
            if ended.ending is not Ending.DONE:
                raise
        self.serving.flush()
        with self._database.writing() as session:
            self.state = finish_job(session, self.lease, failure=failure, now=self._clock())
        return self.state

    def end(self) -> None:
        """Gives the job back."""
        with self._database.writing() as session:
            release_job(session, self.lease, now=self._clock(), crash=None)

    def kill(self) -> None:
        """Leaves everything unchanged, and lets the job's lease expire."""
        with self._database.writing() as session:
            job = JobRepository(session).get_locked(self.lease.job_id)
            job.lease_expires_at = self._clock() - timedelta(seconds=1)


@contextmanager
def served(database: Database) -> Iterator[Run]:
    """The run of the next job in a thread, which takes a turn every hundredth of a second until the job's end."""
    run, stop, failed = Run(database), threading.Event(), list[BaseException]()

    def work() -> None:
        try:
            while not stop.is_set() and run.turn() is JobState.RUNNING:
                time.sleep(0.01)
        except BaseException as error:  # noqa: BLE001 - told below
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield run
    finally:
        stop.set()
        thread.join()
    assert not failed, failed
