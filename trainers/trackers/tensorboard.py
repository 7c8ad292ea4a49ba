"""A trial as TensorBoard's event file, with its hyperparameters: by `tensorboardX`, which writes without TensorFlow."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.summary import hparams, scalar

from trainers.trackers.protocol import RunEnd, SafeNames, TrackedTrial


class TensorBoardRun:
    """A directory `JOB/trial-NUMBER` below TensorBoard's `--logdir`.

    `SummaryWriter` writes by a thread of its own: where that cannot, as on a full disk, its caller waits for ever. So
    events are written here, by whoever logs them.
    """

    def __init__(self, directory: Path, trial: TrackedTrial, *, metrics: Mapping[str, float] | None = None) -> None:
        """Begins the file.

        Args:
            metrics: metrics by which the tab HPARAMS compares trials, with any value: what is logged shows there; None:
                the names are not known yet.

        Raises:
            OSError: it cannot be written; so do the methods.
        """
        self._names = SafeNames()
        # Two files of one second would have one name, and TensorBoard reads them in the order of their names.
        run = directory / trial.job / trial.run_name
        run.mkdir(parents=True, exist_ok=True)
        self._writer = EventsWriter(str(run / "events"), filename_suffix=f".{time.time_ns()}")
        given = {
            name: value if isinstance(value, bool | int | float | str) else str(value)
            for name, value in trial.parameters.items()
        }
        for summary in hparams(given, {self._names.of(name): value for name, value in (metrics or {}).items()}):
            self._writer.write_event(Event(summary=summary, wall_time=time.time()))
        self._writer.flush()

    def log(self, step: int, metrics: Mapping[str, float], *, unix_seconds: float) -> None:
        for name, value in metrics.items():
            summary = scalar(self._names.of(name), value)
            self._writer.write_event(Event(summary=summary, step=step, wall_time=unix_seconds))
        self._writer.flush()

    def end(self, how: RunEnd, *, unix_seconds: float) -> None:
        self._writer.close()
