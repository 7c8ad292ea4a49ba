"""A trial as TensorBoard's event file, with its hyperparameters: by `tensorboardX`, which writes without TensorFlow."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from tensorboardX import SummaryWriter
from tensorboardX.summary import hparams

from trainers.trackers.names import SafeNames
from trainers.trackers.protocol import RunEnd, TrackedTrial


class TensorBoardRun:
    """A directory `JOB/trial-NUMBER` below TensorBoard's `--logdir`."""

    def __init__(self, directory: Path, trial: TrackedTrial, *, metrics: Mapping[str, float] | None = None) -> None:
        """Begins the file.

        Args:
            metrics: those by which the tab HPARAMS compares trials, with any value: what is logged shows there; None:
                the names are not known yet.
        """
        self._names = SafeNames()
        # Two files of one second would have one name, and TensorBoard reads them in the order of their names.
        self._writer = SummaryWriter(str(directory / trial.job / trial.run_name), filename_suffix=f".{time.time_ns()}")
        given = {
            name: value if isinstance(value, bool | int | float | str) else str(value)
            for name, value in trial.parameters.items()
        }
        for summary in hparams(given, {self._names.of(name): value for name, value in (metrics or {}).items()}):
            self._writer.file_writer.add_summary(summary)

    def log(self, step: int, metrics: Mapping[str, float], *, unix_seconds: float) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(self._names.of(name), value, step, walltime=unix_seconds)

    def end(self, how: RunEnd, *, unix_seconds: float) -> None:
        self._writer.close()
