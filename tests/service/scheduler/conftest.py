"""A worker side for tests of whole runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from service.store.session import Database
from tests.service.scheduler.service_process import PLUGIN, ServiceProcesses


@pytest.fixture
def service(sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServiceProcesses]:
    """A database that knows the troubled workload, and no worker yet; all processes are ended afterwards."""
    monkeypatch.syspath_prepend(PLUGIN)
    service = ServiceProcesses(sqlite_database, tmp_path)
    yield service
    service.close()
