"""A real, migrated database of each kind for every test that asks for one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url, text

from service.store.migrate import migrate
from service.store.session import Database
from tests.support.postgresql import postgresql_server
from tests.support.service.service_process import PLUGIN, ServiceProcesses, lasting


@pytest.fixture(scope="session")
def postgresql_url() -> Iterator[str]:
    """The PostgreSQL server of this test session; the URL of its maintenance database."""
    with postgresql_server() as url:
        yield url


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.processes)])
def empty_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A new database of each kind, without tables."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'test.sqlite3'}"
        return
    server_url = request.getfixturevalue("postgresql_url")
    name = f"test_{abs(hash(str(tmp_path)))}"
    admin = create_engine(server_url, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    yield make_url(server_url).set(database=name).render_as_string(hide_password=False)
    with admin.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    admin.dispose()


@pytest.fixture(scope="session")
def migrated_sqlite_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite database without rows, to be copied: all migrations take far longer than most tests."""
    path = tmp_path_factory.mktemp("migrated") / "empty.sqlite3"
    database = Database(f"sqlite:///{path}")
    migrate(database)
    database.close()
    return path


@pytest.fixture
def database(empty_database_url: str, migrated_sqlite_file: Path) -> Iterator[Database]:
    """A migrated database of each kind."""
    url = make_url(empty_database_url)
    if url.drivername == "sqlite":
        assert url.database is not None
        shutil.copyfile(migrated_sqlite_file, url.database)
    database = Database(empty_database_url)
    if url.drivername != "sqlite":
        migrate(database)
    yield database
    database.close()


@pytest.fixture
def sqlite_database(tmp_path: Path, migrated_sqlite_file: Path) -> Iterator[Database]:
    """A migrated SQLite database, where the kind does not matter."""
    path = tmp_path / "service.sqlite3"
    shutil.copyfile(migrated_sqlite_file, path)
    database = Database(f"sqlite:///{path}")
    yield database
    database.close()


@pytest.fixture
def new_service(
    sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ServiceProcesses]:
    """A database that knows the troubled workload, and no worker yet; all processes are ended afterwards."""
    monkeypatch.syspath_prepend(PLUGIN)
    service = ServiceProcesses(sqlite_database, tmp_path)
    yield service
    service.close()


@pytest.fixture
def service(new_service: ServiceProcesses) -> ServiceProcesses:
    """The service of most tests; files whose tests can share one have one with a worker instead."""
    return new_service


@pytest.fixture(scope="package")
def lasting_service(migrated_sqlite_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcesses]:
    """A database of its own, and a worker that lives until the last test of this folder."""
    with lasting(migrated_sqlite_file, tmp_path_factory.mktemp("lasting")) as service:
        yield service


@pytest.fixture
def shared_service(lasting_service: ServiceProcesses, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServiceProcesses]:
    """A service with a worker, for tests that kill none: a worker's start and first job cost more than later jobs.

    It knows the troubled workload. No job is left unfinished, and no process but the worker's.
    """
    monkeypatch.syspath_prepend(PLUGIN)
    yield lasting_service
    lasting_service.settle()
