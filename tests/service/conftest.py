"""A real, migrated database of each kind for every test that asks for one."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url, text

from service.store.migrate import migrate
from service.store.session import Database
from service.store.writes import Writes
from tests.support.lanes import lane
from tests.support.postgresql import postgresql_server
from tests.support.service.databases.emptied import EmptiedDatabases
from tests.support.service.service_process import PLUGIN, ServiceProcesses, for_one_test, lasting
from trainers.processes.starting import WarmProcess, forked_from
from trainers.workloads.describe import environment_of_children


@pytest.fixture(scope="session")
def postgresql_url() -> Iterator[str]:
    """The PostgreSQL server of this test session; the URL of its maintenance database."""
    with postgresql_server() as url:
        yield url


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.processes)])
def database_kind(request: pytest.FixtureRequest) -> str:
    """The kinds of databases that there are."""
    return str(request.param)


@pytest.fixture
def empty_database_url(database_kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A new database of each kind, without tables."""
    if database_kind == "sqlite":
        yield f"sqlite:///{tmp_path / 'empty.sqlite3'}"
        return
    with _postgresql_database(request.getfixturevalue("postgresql_url"), "template1") as url:
        yield url


@pytest.fixture(scope="session")
def migrated_sqlite_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite database without rows, to be copied: all migrations take far longer than most tests."""
    path = tmp_path_factory.mktemp("migrated") / "empty.sqlite3"
    database = Database(f"sqlite:///{path}")
    migrate(database)
    database.close()
    return path


@pytest.fixture(scope="session")
def migrated_postgresql(postgresql_url: str) -> Iterator[str]:
    """The name of a migrated PostgreSQL database without rows, to be copied."""
    with _postgresql_database(postgresql_url, "template1") as url:
        database = Database(url)
        migrate(database)
        database.close()
        yield str(make_url(url).database)


@pytest.fixture
def migrated_database_url(
    database_kind: str, request: pytest.FixtureRequest, tmp_path: Path, migrated_sqlite_file: Path
) -> Iterator[str]:
    """A migrated database of each kind."""
    if database_kind == "sqlite":
        path = tmp_path / "service.sqlite3"
        shutil.copyfile(migrated_sqlite_file, path)
        yield f"sqlite:///{path}"
        return
    template = request.getfixturevalue("migrated_postgresql")
    with _postgresql_database(request.getfixturevalue("postgresql_url"), template) as url:
        yield url


@contextmanager
def _postgresql_database(server_url: str, template: str) -> Iterator[str]:
    """The URL of a new database that is a copy of another one, to which nobody is connected."""
    name = f"test_{uuid.uuid4().hex}"
    admin = create_engine(server_url, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY"))
    try:
        yield make_url(server_url).set(database=name).render_as_string(hide_password=False)
    finally:
        with admin.connect() as connection:
            connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
        admin.dispose()


@pytest.fixture
def database(database_kind: str, request: pytest.FixtureRequest) -> Database:
    """A migrated database of each kind."""
    database: Database = request.getfixturevalue(f"{database_kind}_database")
    return database


@pytest.fixture(scope="session")
def emptied_databases(postgresql_url: str, migrated_postgresql: str) -> Iterator[EmptiedDatabases]:
    """A PostgreSQL database for one test after the other."""
    emptied = EmptiedDatabases(lambda: _postgresql_database(postgresql_url, migrated_postgresql))
    yield emptied
    emptied.close()


@pytest.fixture
def postgresql_database(request: pytest.FixtureRequest) -> Iterator[Database]:
    """A migrated PostgreSQL database."""
    if lane(request.node) == "processes":
        emptied: EmptiedDatabases = request.getfixturevalue("emptied_databases")
        with emptied.lent() as database:
            yield database
        return
    # A worker that survives its test must not find the next one's.
    database = Database(request.getfixturevalue("migrated_database_url"))
    yield database
    database.close()


@pytest.fixture(scope="session")
def reused_database(tmp_path_factory: pytest.TempPathFactory) -> Database:
    """A SQLite database for one test after the other, which each finds new. Its engine compiles a statement once, where
    one of each test's own would compile all again; who listens to its events stops before the test ends."""
    return Database(f"sqlite:///{tmp_path_factory.mktemp('database') / 'service.sqlite3'}")


@pytest.fixture
def sqlite_database(request: pytest.FixtureRequest, tmp_path: Path, migrated_sqlite_file: Path) -> Iterator[Database]:
    """A migrated SQLite database, where the kind does not matter."""
    if lane(request.node) == "fast":
        database: Database = request.getfixturevalue("reused_database")
        database.writes = Writes()
    else:  # a process that survives its test must not find the next one's
        database = Database(f"sqlite:///{tmp_path / 'service.sqlite3'}")
    path = str(make_url(database.url).database)
    for suffix in ("", "-wal", "-shm"):  # a connection that a test has left open keeps the file that it knows
        Path(path + suffix).unlink(missing_ok=True)
    shutil.copyfile(migrated_sqlite_file, path)
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
    """A service with a worker, for tests that kill none: a worker's start and first job cost more than later jobs."""
    yield from for_one_test(lasting_service, monkeypatch)


@pytest.fixture(scope="session")
def _warm_process() -> Iterator[WarmProcess]:
    warm = WarmProcess(environment_of_children())
    yield warm
    warm.close()


@pytest.fixture
def warm_process(_warm_process: WarmProcess, request: pytest.FixtureRequest) -> Iterator[None]:
    """Answers this test's questions about models by forks of one process, as in a running service.

    One that starts by itself imports for four core-seconds. A test that may start no process has none: a service that
    is asked for workloads would start it.
    """
    if lane(request.node) == "fast":
        yield
        return
    with forked_from(_warm_process):
        yield
