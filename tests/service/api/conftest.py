"""A client of the API on each kind of database."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from service.store.session import Database
from tests.support.service.live import running
from tests.support.waiting import PATIENCE_SECONDS


@pytest.fixture
def http(database: Database, warm_process: None) -> Iterator[httpx.Client]:  # noqa: ARG001 # the service forks it
    """A client of the API on each kind of database."""
    with running(database) as url, _client(url) as client:
        yield client


@pytest.fixture
def sqlite_http(sqlite_database: Database, warm_process: None) -> Iterator[httpx.Client]:  # noqa: ARG001 # the service forks it
    """A client of the API on SQLite, where the kind of database does not matter."""
    with running(sqlite_database) as url, _client(url) as client:
        yield client


def _client(url: str) -> httpx.Client:
    # Without TLS, whose certificates take longer to read than most tests.
    return httpx.Client(base_url=url, trust_env=False, verify=False, timeout=PATIENCE_SECONDS)
