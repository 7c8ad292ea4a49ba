"""Who spent the processor's time: the API, the database's server, the clients, and whatever else the machine did."""

from __future__ import annotations

import time
from dataclasses import dataclass

import psutil

from tests.benchmarks.api.process import ApiProcess, ServedDatabase


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds of a stretch of time, and the processor seconds in it."""

    wall: float
    api: float
    database: float
    """Seconds of the database's server; 0 for SQLite, which works in the API's process."""
    clients: float
    everything: float
    """Seconds of all processes of the machine."""

    def since(self, earlier: Spent) -> Spent:
        return Spent(
            self.wall - earlier.wall,
            self.api - earlier.api,
            self.database - earlier.database,
            self.clients - earlier.clients,
            self.everything - earlier.everything,
        )

    @property
    def other_processors(self) -> float:
        """Processors that were busy with something else, on average: near 0 on a quiet machine."""
        return max(0.0, self.everything - self.api - self.database - self.clients) / self.wall


@dataclass(frozen=True, slots=True)
class Meter:
    """Reads what was spent so far."""

    api: ApiProcess
    database: ServedDatabase

    def read(self) -> Spent:
        times = psutil.cpu_times()
        return Spent(
            time.monotonic(),
            self.api.all_seconds(),
            self.database.seconds(),
            time.process_time(),
            sum(times) - times.idle - getattr(times, "iowait", 0.0),
        )
