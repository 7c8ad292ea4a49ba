"""A job as a directory that MLflow or TensorBoard opens, written by whoever asks the service."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
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
_DATA_VERSION = "PRAGMA data_version"
"""Another number once another connection has changed the file."""


class AlreadyExported(ServiceError):
    """The directory has the job already: a second time, each of its trials would be there twice."""


class StoreNotWritten(ServiceError):
    """MLflow's store in the directory could not be read or written, as on a full disk."""


class StoreChanged(ServiceError):
    """Another program wrote into MLflow's store during the export, which would undo that."""


def export_directory(client: Client, job_id: str, directory_format: DirectoryFormat, directory: Path) -> int:
    """Writes a job's trials with their measurements to a directory, which is made; how many trials there are.

    All of them are there at the end, or nothing is. Memory holds one page of measurements at a time.

    Raises:
        ApiError, ServiceUnreachable: as the client.
        AlreadyExported: the directory has the job.
        StoreChanged, StoreNotWritten
        MissingExtra: what the format needs is not installed.
        OSError: the directory cannot be written.
    """
    job = client.job(job_id)
    with needing("trackers", subject=f"an export to {directory_format}"):
        writing = _mlflow(directory, job) if directory_format == "mlflow" else _tensorboard(directory, job)
        with writing as begin:
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


@contextmanager
def _tensorboard(directory: Path, job: JobRead) -> Iterator[_Begin]:
    from trainers.trackers.tensorboard import TensorBoardRun

    target = directory / job.id
    if target.exists():
        raise AlreadyExported(f"{target} is there already")
    with _part_of(directory, job) as part:
        yield lambda tracked, trial: TensorBoardRun(
            part, tracked, metrics={name: value for name, value in trial.metrics.items() if value is not None}
        )
        with suppress(FileNotFoundError):  # a job without trials
            (part / job.id).rename(target)


@contextmanager
def _mlflow(directory: Path, job: JobRead) -> Iterator[_Begin]:
    from mlflow.exceptions import MlflowException

    from service.store.session import DATABASE_ERRORS
    from trainers.trackers.mlflow_store import STORE_FILE, MlflowRun, MlflowStore, store_in

    target = directory / STORE_FILE
    try:
        with _part_of(directory, job) as part, _copied_back(target, part / STORE_FILE):
            store = MlflowStore(store_in(part), artifacts=directory / "artifacts")
            if store.client.get_experiment_by_name(job.id) is not None:
                raise AlreadyExported(f"{target} has an experiment {job.id} already")
            yield lambda tracked, trial: MlflowRun(store, tracked, unix_seconds=_begun(trial).timestamp())
    except (MlflowException, sqlite3.Error, *DATABASE_ERRORS) as error:  # the last where MLflow makes its tables
        reason, _, _statement = str(error).partition("\n")
        raise StoreNotWritten(f"{target}: {reason}") from error


@contextmanager
def _part_of(directory: Path, job: JobRead) -> Iterator[Path]:
    """A directory to fill, removed at the end; so is `directory`, if it was made for it and has nothing else."""
    is_new = not directory.exists()
    directory.mkdir(parents=True, exist_ok=True)
    prefix = f"{job.id}.part-"
    for left in directory.glob(f"{prefix}*"):  # by an export that was killed
        shutil.rmtree(left, ignore_errors=True)
    try:
        # Of another name each time: MLflow keeps connections to a store that a process has opened.
        with TemporaryDirectory(prefix=prefix, dir=directory, ignore_cleanup_errors=True) as part:
            yield Path(part)
    finally:
        if is_new:
            with suppress(OSError):  # it has the job, or could not be made
                directory.rmdir()


@contextmanager
def _copied_back(target: Path, part: Path) -> Iterator[None]:
    """Changes a file of SQLite by changing a copy of it: at once for its readers, and only if no error occurs.

    Raises:
        StoreChanged: another program changed it meanwhile.
        sqlite3.Error: it is none, or cannot be written.
    """
    if not target.exists():
        yield
        part.rename(target)
        return
    with closing(sqlite3.connect(target)) as theirs, closing(sqlite3.connect(part)) as ours:
        version = theirs.execute(_DATA_VERSION).fetchone()
        theirs.backup(ours)
        yield
        if theirs.execute(_DATA_VERSION).fetchone() != version:
            raise StoreChanged(f"{target} was written to by another program meanwhile; nothing was exported: try again")
        ours.backup(theirs)


def _begun(trial: TrialRead) -> datetime:
    return trial.started_at or trial.created_at


def _tracked(job: JobRead, trial: TrialRead) -> TrackedTrial:
    tags = {"phase": trial.phase.value, "state": trial.state.value}
    if trial.reason is not None:
        tags["reason"] = trial.reason.value
    return TrackedTrial(job.id, job.name, trial.number, trial.parameters, tags)
