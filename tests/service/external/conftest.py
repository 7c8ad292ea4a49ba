"""An external job on each kind of database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from service.store.session import Database
from tests.service.external.worlds import World, world_of


@pytest.fixture
def world(database: Database) -> Iterator[World]:
    yield from world_of(database)


@pytest.fixture
def sqlite_world(sqlite_database: Database) -> Iterator[World]:
    """Where the kind of database does not matter."""
    yield from world_of(sqlite_database)
