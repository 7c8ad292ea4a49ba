"""A trial as a run of MLflow, in a SQLite file that `mlflow ui` opens, or in any other tracking store.

Since version 3.7 MLflow's default is such a file, and it refuses its earlier directories of files.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping
from pathlib import Path

# What is tracked here is told to nobody else. It is read at the import.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")

from mlflow.entities import Metric, Param
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from trainers.trackers.protocol import RunEnd, SafeNames, TrackedTrial

logging.getLogger("mlflow").setLevel(logging.WARNING)  # it tells of each table that it makes

STORE_FILE = "mlflow.db"
AT_ONCE = 1000
"""Metrics that MLflow takes in one batch."""
PARAMETERS_AT_ONCE = 100
"""Parameters that MLflow takes in one batch."""
MAX_PARAMETER_LENGTH = 6000
"""Characters of a value that MLflow takes; longer ones are an error or cut, by its settings."""
_STATUS: Mapping[RunEnd, str] = {"completed": "FINISHED", "failed": "FAILED", "stopped": "KILLED", "open": "RUNNING"}


def store_in(directory: Path) -> str:
    """The URI of the store in a directory: that of `mlflow ui --backend-store-uri URI`."""
    return f"sqlite:///{directory.resolve() / STORE_FILE}"


class MlflowStore:
    """A tracking store, with an experiment for each job."""

    def __init__(self, uri: str, *, artifacts: Path | None = None) -> None:
        """Opens the store, and makes its tables if need be.

        Args:
            artifacts: where MLflow would keep files of runs; None: where the store says.
        """
        self.client = MlflowClient(uri)
        self._artifacts = artifacts
        self._experiments: dict[str, str] = {}

    def experiment(self, trial: TrackedTrial) -> str:
        """The id of the job's experiment, which is made if need be."""
        if trial.job not in self._experiments:
            found = self.client.get_experiment_by_name(trial.job)
            if found is None:
                try:
                    location = None if self._artifacts is None else self._artifacts.resolve().as_uri()
                    made = self.client.create_experiment(trial.job, location, tags={"job_name": trial.job_name})
                except MlflowException:  # another process was first
                    found = self.client.get_experiment_by_name(trial.job)
                    if found is None:
                        raise
                    made = found.experiment_id
                self._experiments[trial.job] = made
            else:
                self._experiments[trial.job] = found.experiment_id
        return self._experiments[trial.job]


class MlflowRun:
    """A run of a store: the one that the trial has already, if it was tracked before."""

    def __init__(self, store: MlflowStore, trial: TrackedTrial, *, unix_seconds: float) -> None:
        self._client = store.client
        self._names = SafeNames()
        self._waiting: list[Metric] = []
        experiment = store.experiment(trial)
        earlier = self._client.search_runs([experiment], f"tags.trial = '{trial.number}'", max_results=1)
        if earlier:
            self.run_id: str = earlier[0].info.run_id
            return
        run = self._client.create_run(
            experiment,
            start_time=round(1000 * unix_seconds),
            run_name=trial.run_name,
            tags={"trial": str(trial.number), **trial.tags},
        )
        self.run_id = run.info.run_id
        names = SafeNames()
        parameters = [
            Param(names.of(name), str(value)[:MAX_PARAMETER_LENGTH]) for name, value in trial.parameters.items()
        ]
        for start in range(0, len(parameters), PARAMETERS_AT_ONCE):
            self._client.log_batch(self.run_id, params=parameters[start : start + PARAMETERS_AT_ONCE])

    def log(self, step: int, metrics: Mapping[str, float], *, unix_seconds: float) -> None:
        timestamp = round(1000 * unix_seconds)
        self._waiting += [
            Metric(self._names.of(name), value, timestamp, step)
            for name, value in metrics.items()
            if math.isfinite(value)
        ]
        if len(self._waiting) >= AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Writes what waits."""
        for start in range(0, len(self._waiting), AT_ONCE):
            self._client.log_batch(self.run_id, metrics=self._waiting[start : start + AT_ONCE])
        self._waiting = []

    def end(self, how: RunEnd, *, unix_seconds: float) -> None:
        self.flush()
        self._client.set_tag(self.run_id, "end", how)
        if how != "open":
            self._client.set_terminated(self.run_id, _STATUS[how], round(1000 * unix_seconds))
