"""The metrics of an API process, in Prometheus' format.

What rows tell (jobs, trials, workers) is read when somebody asks and kept for some seconds; requests and events are
counted as they come. No label holds a user's text: labels are states, phases, templates of routes and statuses.
"""

from __future__ import annotations

import asyncio
import logging
import platform
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from anyio import CapacityLimiter, to_thread
from prometheus_client import CollectorRegistry, Gauge, Histogram, Info, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from service.clock import Clock
from service.domain import JobState
from service.store.repositories import OperationFigures, OperationRepository
from service.store.session import DATABASE_ERRORS, Database

PREFIX = "shampoo_tuner"
KEPT_SECONDS = 5.0
"""Figures from rows are read again no sooner."""
LARGEST_SHARE = 0.05
"""Largest share of the time that reading them may take, however often they are asked for: what took a second is kept
for twenty."""
READ_SECONDS = 8.0
"""Whoever asks is answered after so long without figures that are still being read; Prometheus gives up after 10."""
QUANTILES = (0.5, 0.9, 1.0)
LATENCY_BUCKETS = (0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
LAG_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)

logger = logging.getLogger(__name__)


class Metrics:
    """The registry of one application, and what its parts count in it."""

    def __init__(self, database: Database, *, version: str, lease_seconds: float, clock: Clock) -> None:
        """Prepares the metrics; the database is first asked when somebody reads them.

        Args:
            database: whose connections are counted. Figures are read by a connection of their own, however busy it is.
            lease_seconds: a worker that was heard of within so long is alive.
        """
        self.registry = CollectorRegistry(auto_describe=False)
        self.answer_seconds = Histogram(
            f"{PREFIX}_http_answer_seconds",
            "Time until a request's answer began, by the template of its route.",
            ("method", "route", "status"),
            buckets=LATENCY_BUCKETS,
            registry=self.registry,
        )
        self.event_lag_seconds = Histogram(
            f"{PREFIX}_event_lag_seconds",
            "Time from an event to the moment at which a stream passes it on.",
            buckets=LAG_BUCKETS,
            registry=self.registry,
        )
        self.event_streams = Gauge(
            f"{PREFIX}_event_streams", "Streams of events that are open.", registry=self.registry
        )
        in_use = Gauge(
            f"{PREFIX}_database_connections_in_use",
            "Connections of this process's pool that requests have now.",
            registry=self.registry,
        )
        in_use.set_function(lambda: database.connections_in_use)
        most = Gauge(
            f"{PREFIX}_database_connections_max", "Connections that the pool opens at most.", registry=self.registry
        )
        most.set(database.num_connections)
        Info(f"{PREFIX}_build", "What runs here.", registry=self.registry).info(
            {"version": version, "python": platform.python_version()}
        )
        ProcessCollector(registry=self.registry)
        self._stored = StoredMetrics(database.url, lease_seconds=lease_seconds, clock=clock)
        self.registry.register(self._stored)

    async def text(self) -> bytes:
        """All metrics in the text format, 0.0.4."""
        await self._stored.refresh()
        return generate_latest(self.registry)

    def close(self) -> None:
        self._stored.close()


class StoredMetrics:
    """The metrics that rows tell: a collector of `prometheus_client`, which gives what `refresh` has read last."""

    def __init__(self, database_url: str, *, lease_seconds: float, clock: Clock) -> None:
        self._database = Database(database_url, num_connections=1)
        self._lease = timedelta(seconds=lease_seconds)
        self._clock = clock
        self._figures: OperationFigures | None = None
        self._read_at = clock()
        self._read_seconds = 0.0
        self._is_up = False
        self._next_read = 0.0
        self._reading: asyncio.Task[None] | None = None

    def close(self) -> None:
        self._database.close()

    async def refresh(self) -> None:
        """Reads the figures anew if they are old; whoever asks meanwhile waits for the same reading, but not long."""
        if self._reading is None or self._reading.done():
            if time.monotonic() < self._next_read:
                return
            self._reading = asyncio.create_task(self._read(), name="metrics")
        # A task of its own: whoever gives up waiting does not end it.
        done, _ = await asyncio.wait({self._reading}, timeout=READ_SECONDS)
        for read in done:
            read.result()

    async def _read(self) -> None:
        began = time.monotonic()
        try:
            now = self._clock()
            figures = await to_thread.run_sync(self._look, now, limiter=CapacityLimiter(1))
        except DATABASE_ERRORS as error:
            logger.warning("no figures of jobs and trials: %s", error)
            self._is_up, self._figures = False, None
        else:
            self._is_up, self._figures, self._read_at = True, figures, now
        ended = time.monotonic()
        self._read_seconds = ended - began
        self._next_read = ended + max(KEPT_SECONDS, self._read_seconds / LARGEST_SHARE)

    def _look(self, now: datetime) -> OperationFigures:
        with self._database.reading() as session:
            return OperationRepository(session).figures(alive_since=now - self._lease)

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            f"{PREFIX}_database_up", "1 if the database answered when figures were last read.", float(self._is_up)
        )
        yield GaugeMetricFamily(
            f"{PREFIX}_figures_read_seconds", "Time that the last reading of figures took.", self._read_seconds
        )
        if self._figures is not None:
            yield from _families(self._figures, self._read_at)


def _families(figures: OperationFigures, read_at: datetime) -> Iterator[Metric]:
    jobs = GaugeMetricFamily(f"{PREFIX}_jobs", "Jobs by state.", labels=("state",))
    for state in JobState:
        jobs.add_metric((state.value,), figures.jobs.get(state, 0))
    yield jobs
    trials = GaugeMetricFamily(f"{PREFIX}_trials", "Trials by phase and state.", labels=("phase", "state"))
    for counted in figures.trials:
        trials.add_metric((counted.phase.value, counted.state.value), counted.count)
    yield trials
    yield GaugeMetricFamily(f"{PREFIX}_workers_alive", "Workers heard of lately.", figures.workers_alive)
    oldest = figures.oldest_queued_at
    yield GaugeMetricFamily(
        f"{PREFIX}_oldest_queued_job_seconds",
        "Age of the oldest job in the queue; 0: the queue is empty.",
        0.0 if oldest is None else max(0.0, (read_at - oldest).total_seconds()),
    )
    yield _quantiles(
        "job_queue_seconds", "Time of the newest jobs from submission to their first run.", figures.queue_seconds
    )
    yield _quantiles(
        "trial_start_seconds",
        "Time of the newest trials from the order to train until they train.",
        figures.trial_start_seconds,
    )
    yield CounterMetricFamily(
        f"{PREFIX}_training_rank_seconds", "Training time of all trials, times their ranks.", figures.rank_seconds
    )
    yield GaugeMetricFamily(f"{PREFIX}_ranks_in_trials", "Ranks whose trial is running.", figures.ranks_in_trials)


def _quantiles(name: str, documentation: str, ascending: Sequence[float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"{PREFIX}_{name}", documentation, labels=("quantile",))
    for quantile in QUANTILES if ascending else ():
        family.add_metric((f"{quantile:g}",), ascending[round(quantile * (len(ascending) - 1))])
    return family
