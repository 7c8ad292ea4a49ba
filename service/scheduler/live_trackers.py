"""The experiment trackers of a job: a thread of its run reports to them while trials train; errors are only warnings.

One process writes for all trials, whether they are trained by ranks of any machine or by clients: a tracker's file has
one writer, and no training waits for it.
"""

from __future__ import annotations

import logging
import math
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from service.domain import TrialState
from trainers.config import Json, Measurement, TrialConfig
from trainers.trackers.protocol import RunEnd, TrackedRun, TrackedTrial, TrackerName

if TYPE_CHECKING:
    from trainers.trackers.mlflow_store import MlflowStore

logger = logging.getLogger(__name__)

MAX_WAITING = 10_000
"""Measurements that may wait for a slow tracker; further ones are left out with a warning."""
CLOSING_SECONDS = 30.0
"""Seconds that the end of a run waits for unwritten measurements: MLflow takes seconds to create its tables."""

_ENDS: Mapping[TrialState, RunEnd] = {
    TrialState.QUEUED: "open",
    TrialState.COMPLETED: "completed",
    TrialState.FAILED: "failed",
    TrialState.PRUNED: "stopped",
    TrialState.CANCELLED: "stopped",
}


@dataclass(frozen=True, slots=True)
class _Measured:
    number: int
    config: TrialConfig
    measurement: Measurement
    at: float


@dataclass(frozen=True, slots=True)
class _Ended:
    number: int
    state: TrialState
    at: float


_Told: TypeAlias = _Measured | _Ended | None
"""None: nothing more will come."""


class LiveTrackers:
    """Reports the trials of one run of a job to trackers. Without any trackers it does nothing."""

    def __init__(
        self,
        job_id: str,
        names: Sequence[TrackerName],
        directory: Path,
        *,
        job_name: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Prepares; the first measurement opens the trackers.

        Args:
            directory: the directory for all jobs, with a subdirectory for each tracker.
            clock: unix seconds.
        """
        self._job_id = job_id
        self._job_name = job_name
        self._directory = directory
        self._clock = clock
        self._open: dict[tuple[TrackerName, int], TrackedRun] = {}
        self._names = list(names)
        self._waiting: queue.Queue[_Told] = queue.Queue(MAX_WAITING)
        self._thread: threading.Thread | None = None
        self._has_left_out = False

    def measured(self, number: int, config: TrialConfig, measurement: Measurement) -> None:
        """Queues a measurement, without waiting."""
        self._tell(_Measured(number, config, measurement, self._clock()))

    def ended(self, number: int, state: TrialState) -> None:
        """Queues the end of a trial, or with `queued` that it may continue later, without waiting."""
        self._tell(_Ended(number, state, self._clock()))

    def close(self, *, timeout_seconds: float = CLOSING_SECONDS) -> None:
        """Writes the waiting measurements, for some seconds."""
        if self._thread is not None:
            self._tell(None)
            self._thread.join(timeout_seconds)

    def _tell(self, told: _Told) -> None:
        if not self._names:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="trackers", daemon=True)
            self._thread.start()
        try:
            self._waiting.put_nowait(told)
        except queue.Full:
            if not self._has_left_out:
                logger.warning("trackers are too slow: some measurements are left out there")
            self._has_left_out = True

    def _work(self) -> None:
        while (told := self._waiting.get()) is not None:
            for name in list(self._names):
                try:
                    self._write(name, told)
                except Exception as error:  # noqa: BLE001 - the boundary to other packages
                    logger.warning("tracker %s is told nothing more: %s: %s", name, type(error).__name__, error)
                    self._names.remove(name)
        for (name, number), run in self._open.items():
            try:
                run.end("open", unix_seconds=self._clock())
            except Exception as error:  # noqa: BLE001 - as above
                logger.warning("tracker %s: trial %d: %s", name, number, error)

    def _write(self, name: TrackerName, told: _Measured | _Ended) -> None:
        if isinstance(told, _Ended):
            ended = self._open.pop((name, told.number), None)
            if ended is not None:
                ended.end(_ENDS[told.state], unix_seconds=told.at)
            return
        run = self._open.get((name, told.number))
        if run is None:
            tracked = TrackedTrial(self._job_id, self._job_name, told.number, parameters_of(told.config))
            run = self._open[name, told.number] = _begin(name, self._directory, tracked, unix_seconds=told.at)
        metrics = {metric: value for metric, value in told.measurement.metrics.items() if math.isfinite(value)}
        run.log(told.measurement.step, metrics, unix_seconds=told.at)


def parameters_of(config: TrialConfig) -> dict[str, Json]:
    """Settings of the training in a trial's config, flat, by their names in search spaces."""
    given: dict[str, Json] = {
        "optimizer": config.optimizer.name,
        **config.optimizer.arguments,
        **{f"workload.{name}": value for name, value in config.workload_options.items()},
        "training.batch_size": config.batch_size,
        "training.seed": config.seed,
        "training.num_steps": config.num_steps,
    }
    return given


@cache
def _store(directory: Path) -> MlflowStore:
    """The store of `MLFLOW_TRACKING_URI` if that is set, else one in the directory; opened only once, because that
    takes seconds."""
    from trainers.trackers.mlflow_store import MlflowStore, store_in

    return MlflowStore(os.environ.get("MLFLOW_TRACKING_URI") or store_in(directory))


def _begin(name: TrackerName, directory: Path, trial: TrackedTrial, *, unix_seconds: float) -> TrackedRun:
    """A run of a tracker; a trial that was tracked before continues in its old run, if the tracker supports that."""
    own = directory / name
    own.mkdir(parents=True, exist_ok=True)
    match name:
        case "tensorboard":
            from trainers.trackers.tensorboard import TensorBoardRun

            return TensorBoardRun(own, trial)
        case "mlflow":
            from trainers.trackers.mlflow_store import MlflowRun

            return MlflowRun(_store(own), trial, unix_seconds=unix_seconds)
        case "wandb":
            from trainers.trackers.wandb_offline import WandbRun

            return WandbRun(own, trial)
