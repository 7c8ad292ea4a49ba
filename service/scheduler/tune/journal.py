"""The journal of a run: what it writes to SQL while its trials run, fenced by the lease, and what it reads meanwhile.

A run that has lost its lease ends at once and writes nothing more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from service.errors import LeaseLost, RunAskedToEnd
from service.scheduler.tune.run_end import Ending, RunEnded, Signals
from service.specification.identity import StoredIdentity
from service.store.retry import Write, with_retries, write_with_retries
from service.store.session import Database, Session
from service.use_cases import run
from service.use_cases.leases import Lease
from trainers.config import Measurement

T = TypeVar("T")

RUN_OUTAGE_SECONDS = 120.0
"""Seconds that the database may be unreachable; trials wait meanwhile. Longer than a server takes to restart, and much
shorter than a worker waits, which then starts the run again."""


class Journal:
    """Writes for a run, and keeps measurements until the next write."""

    def __init__(self, database: Database, lease: Lease, signals: Signals) -> None:
        self.lease = lease
        self.now = database.now
        self._database = database
        self._signals = signals
        self._pending: dict[int, list[Measurement]] = {}
        self._identities: dict[int, StoredIdentity] = {}
        self._kept: list[Write] = []

    def keep(self, write: Write) -> None:
        """Keeps a write for the next transaction, where it comes after the measurements."""
        self._kept.append(write)

    def note(self, number: int, measurement: Measurement, identity: StoredIdentity | None = None) -> None:
        """Keeps a measurement of a trial for the next write, and its identity if it is known from now on."""
        self._pending.setdefault(number, []).append(measurement)
        if identity is not None:
            self._identities[number] = identity

    def flush(self) -> None:
        """Writes the measurements that wait. Raises: RunEnded."""
        self.write(lambda _session: None)

    def write(self, write: Write) -> None:
        """Writes the measurements that wait, what was kept, and then `write`, in one transaction.

        Raises:
            RunEnded: the job no longer belongs to this run.
        """
        batch = [
            run.TrialMeasurements(number, reported, self._identities.get(number))
            for number, reported in self._pending.items()
        ]

        def all_of_it(session: Session) -> None:
            if batch:
                run.record_measurements(session, self.lease, batch, now=self.now())
            for kept in self._kept:
                kept(session)
            write(session)

        try:
            write_with_retries(self._database, all_of_it, give_up_seconds=RUN_OUTAGE_SECONDS, may_wait=self._may_wait)
        except LeaseLost as error:
            raise RunEnded(Ending.LEASE_LOST) from error
        except RunAskedToEnd as error:
            raise RunEnded(Ending.ASKED) from error
        self._pending.clear()
        self._kept.clear()
        self._identities.clear()

    def read(self, use: Callable[[Session], T]) -> T:
        """The result of `use` in a reading session."""
        return with_retries(self._database.reading, use, give_up_seconds=RUN_OUTAGE_SECONDS, may_wait=self._may_wait)

    def ending(self) -> Ending | None:
        """The cause for which the run ends early, if there is any."""
        return self._signals.ending()

    def _may_wait(self) -> bool:
        return self.ending() is None
