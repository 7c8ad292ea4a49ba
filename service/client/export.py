"""A job as a directory that MLflow or TensorBoard opens, written by whoever asks the service."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Literal, TypeAlias

from service.api.schemas.jobs import JobRead
from service.api.schemas.trials import TrialRead
from service.client.client import Client
from service.domain import TrialState
from service.errors import ServiceError
from trainers.installation.extras import needing
from trainers.trackers.protocol import RunEnd, TrackedRun, TrackedTrial

DirectoryFormat: TypeAlias = Literal["mlflow", "tensorboard"]

_ENDS: Mapping[TrialState, RunEnd] = {
    TrialState.QUEUED: "open",
    TrialState.RUNNING: "open",
    TrialState.COMPLETED: "completed",
    TrialState.FAILED: "failed",
    TrialState.PRUNED: "stopped",
    TrialState.CANCELLED: "stopped",
}
_Begin: TypeAlias = Callable[[TrackedTrial, TrialRead], TrackedRun]


class AlreadyExported(ServiceError):
    """The directory has the job already: a second time, each of its trials would be there twice."""


def export_directory(client: Client, job_id: str, directory_format: DirectoryFormat, directory: Path) -> int:
    """Writes a job's trials with their measurements to a directory, which is made; how many trials there are.

    Memory holds one page of measurements at a time.

    Raises:
        ApiError, ServiceUnreachable: as the client.
        AlreadyExported: the directory has the job.
        MissingExtra: what the format needs is not installed.
        OSError: the directory cannot be written.
    """
    job = client.job(job_id)
    directory.mkdir(parents=True, exist_ok=True)
    with needing("trackers", subject=f"an export to {directory_format}"):
        begin = _mlflow(directory, job) if directory_format == "mlflow" else _tensorboard(directory, job)
    num_trials = 0
    for trial in client.trials(job_id):
        run = begin(_tracked(job, trial), trial)
        for measured in client.measurements(job_id, trial.number):
            metrics = {name: value for name, value in measured.metrics.items() if value is not None}
            run.log(measured.step, metrics, unix_seconds=measured.recorded_at.timestamp())
        ended = trial.finished_at or trial.started_at or trial.created_at
        run.end(_ENDS[trial.state], unix_seconds=ended.timestamp())
        num_trials += 1
    return num_trials


def _tensorboard(directory: Path, job: JobRead) -> _Begin:
    from trainers.trackers.tensorboard import TensorBoardRun

    if (directory / job.id).exists():
        raise AlreadyExported(f"{directory / job.id} is there already")
    return lambda tracked, trial: TensorBoardRun(
        directory, tracked, metrics={name: value for name, value in trial.metrics.items() if value is not None}
    )


def _mlflow(directory: Path, job: JobRead) -> _Begin:
    from trainers.trackers.mlflow_store import MlflowRun, MlflowStore, store_in

    store = MlflowStore(store_in(directory), artifacts=directory / "artifacts")
    if store.client.get_experiment_by_name(job.id) is not None:
        raise AlreadyExported(f"{store_in(directory)} has an experiment {job.id} already")
    return lambda tracked, trial: MlflowRun(store, tracked, unix_seconds=_begun(trial).timestamp())


def _begun(trial: TrialRead) -> datetime:
    return trial.started_at or trial.created_at


def _tracked(job: JobRead, trial: TrialRead) -> TrackedTrial:
    tags = {"phase": trial.phase.value, "state": trial.state.value}
    if trial.reason is not None:
        tags["reason"] = trial.reason.value
    return TrackedTrial(job.id, job.name, trial.number, trial.parameters, tags)
