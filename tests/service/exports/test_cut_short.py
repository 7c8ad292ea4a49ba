"""An export to a directory is there whole, or not at all: what was there before stays as it was."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from service.api.schemas.trials import TrialRead
from service.client import Client
from service.client.export import StoreChanged, export_directory
from service.domain import Phase
from service.store.session import Database
from tests.support.service.live import finished_job, running
from tests.support.service.scenarios import claimed_job, run_trial
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.processes,  # MLflow asks one for the kind of processor
    pytest.mark.filterwarnings(
        "ignore::sqlalchemy.exc.SADeprecationWarning"
    ),  # of MLflow's tables, with SQLAlchemy 2.1
]

COMMAND = [sys.executable, "-m", "service", "export"]


class _Beside(Client):
    """A client beside whose export of a job something else happens, once a half of the trials is written."""

    def __init__(self, url: str, happens: Callable[[], object]) -> None:
        super().__init__(url)
        self._happens = happens

    def trials(self, job_id: str, **found_by: Any) -> Iterator[TrialRead]:
        for trial in super().trials(job_id, **found_by):
            if trial.number == 2:
                self._happens()
            yield trial


@pytest.fixture
def room(tmp_path: Path) -> Path:
    """An empty directory."""
    directory = tmp_path / "room"
    directory.mkdir()
    return directory


@pytest.mark.parametrize("directory_format", ["mlflow", "tensorboard"])
def test_an_export_that_is_told_to_end_leaves_nothing(
    sqlite_database: Database, room: Path, directory_format: str
) -> None:
    lease = claimed_job(sqlite_database)
    for number in range(40):
        run_trial(sqlite_database, lease, number, 0.5, Phase.SEARCH)
    with running(sqlite_database) as url:
        command = [*COMMAND, lease.job_id, "--url", url, "--format", directory_format, "-o", str(room / "made")]
        with subprocess.Popen(command) as process:
            wait_until(lambda: any(room.glob("made/*")), "something to be written")
            process.terminate()
            assert process.wait() == -signal.SIGTERM
    assert list(room.iterdir()) == []


@pytest.mark.parametrize("output_format", ["csv", "mlflow", "tensorboard"])
def test_an_export_for_which_there_is_no_room_names_it_and_leaves_nothing(
    sqlite_database: Database, room: Path, output_format: str
) -> None:
    job = finished_job(sqlite_database)
    path = room / "made"
    with running(sqlite_database) as url:
        told = subprocess.run(
            [*COMMAND, job, "--url", url, "--format", output_format, "-o", path],
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500)),
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},  # or modules would end there, as in `files_end_at`
            capture_output=True,
            text=True,
        )
    assert (told.returncode, told.stdout, told.stderr.count("\n")) == (1, "", 1)
    assert told.stderr.startswith(f"shampoo-tuner: {path}")
    assert list(room.iterdir()) == []


def test_a_store_that_has_another_job_has_both_or_stays_as_it_is(sqlite_database: Database, room: Path) -> None:
    from mlflow.tracking import MlflowClient

    first, second = finished_job(sqlite_database), finished_job(sqlite_database)
    store = room / "mlflow.db"

    def fail() -> None:
        raise KeyboardInterrupt

    def write() -> None:
        with closing(sqlite3.connect(store)) as others:
            others.execute("CREATE TABLE theirs (number INTEGER)")

    with running(sqlite_database) as url:
        with Client(url) as client:
            export_directory(client, first, "mlflow", room)
        content = store.read_bytes()
        with _Beside(url, fail) as client, pytest.raises(KeyboardInterrupt):
            export_directory(client, second, "mlflow", room)
        assert store.read_bytes() == content
        with _Beside(url, write) as client, pytest.raises(StoreChanged, match="try again"):
            export_directory(client, second, "mlflow", room)
        with Client(url) as client:
            export_directory(client, second, "mlflow", room)
    opened = MlflowClient(f"sqlite:///{store}")
    for job in (first, second):
        experiment = opened.get_experiment_by_name(job)
        assert experiment is not None
        assert len(opened.search_runs([experiment.experiment_id])) == 4
    with closing(sqlite3.connect(store)) as others:
        assert others.execute("SELECT count(*) FROM theirs").fetchone() == (0,)
    assert list(room.iterdir()) == [store]
