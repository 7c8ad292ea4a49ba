"""The real API, and its address in the environment, where commands find it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from service.api.schemas.jobs import JobRead
from service.client import Client
from service.store.session import Database
from tests.support.service.live import running

JOB = "workload: {name: digits-mlp}\nbudget: {num_trials: 4}\n"


@pytest.fixture
def url(sqlite_database: Database, monkeypatch: pytest.MonkeyPatch, warm_process: None) -> Iterator[str]:  # noqa: ARG001 # the service forks it
    """The API's address, which commands find in their environment."""
    with running(sqlite_database) as url:
        monkeypatch.setenv("SHAMPOO_TUNER_URL", url)
        yield url


@pytest.fixture
def job_file(tmp_path: Path) -> str:
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return str(path)


def read_job(url: str, job_id: str) -> JobRead:
    with Client(url) as client:
        return client.job(job_id)
