"""Engines and sessions for SQLite and PostgreSQL.

SQLite runs with WAL, foreign keys and a busy timeout. A writing session takes SQLite's write lock at its start
(`BEGIN IMMEDIATE`): a transaction that reads first and writes later could otherwise fail at once with "database is
locked", whatever the timeout. Its file is made by `service.store.migrate` alone.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pydantic_core import from_json
from sqlalchemy import Connection, Engine, QueuePool, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session, sessionmaker

from service.clock import Clock, utc_now
from service.store.server_clock import ServerClock
from service.store.sqlite_file import SqliteFile, file_of
from service.store.writes import Writes, is_read_only
from trainers.retry import retry

__all__ = [
    "DATABASE_ERRORS",
    "MAX_IDS",
    "UNREADABLE_ROWS",
    "VERSION_TABLE",
    "Database",
    "Session",
    "is_busy",
    "is_new_file",
    "is_unavailable",
    "sees_committed",
    "why_not_supported",
]

BUSY_TIMEOUT_SECONDS = 60.0
"""Seconds that a writer waits for SQLite's one write lock: far longer than any transaction of ours takes."""
WAL_PAUSE_SECONDS = 0.02
"""Seconds until WAL mode is asked for again; only the processes that open a new file at once ever wait."""

VERSION_TABLE = "shampoo_tuner_version"
"""The table with one row, the revision of the schema. Not Alembic's default name: another library that keeps its tables
in the same database could use that one."""

MAX_IDS = 10_000
"""Values named in one statement: fewer than the parameters that either database takes."""

DRIVERS = ("sqlite", "postgresql+psycopg")

_READS_ALONE = "reads_alone"
"""A key in the notes of a session: it only reads."""

DATABASE_ERRORS = (DBAPIError, PoolTimeout)
"""The errors that a statement can raise when the database fails it."""
UNREADABLE_ROWS = (ValueError, LookupError, TypeError)
"""The errors of reading rows whose content is none of ours: text that is no JSON or no time, an unknown state, a
specification that is none any more."""


class Database:
    """Sessions on one database. One per process; close it at the end."""

    def __init__(self, url: str, *, num_connections: int = 15, writes: Writes | None = None) -> None:
        """Prepares connections to `url`.

        Args:
            num_connections: in use at once at most; whoever wants a further one waits for half a minute.
            writes: where it is noted what becomes of writes; None: the database has its own.
        """
        self.url = url
        self.num_connections = num_connections
        self.writes = Writes() if writes is None else writes
        self._engine = _create_engine(url, num_connections)
        path = file_of(url)
        self._file = None if path is None else SqliteFile(path)
        if self._file is not None:
            self._file.watch(self._engine)
        is_embedded = self._engine.dialect.name == "sqlite"
        self.now: Clock = utc_now if is_embedded else ServerClock(self._engine).now
        """Gives the present time, by the clock of the database's server: times of different machines are compared. That
        of a machine's own is used up to the first statement."""
        # SQLite's transactions see one state anyway; PostgreSQL's would see a newer one at each statement.
        isolation = {} if is_embedded else {"isolation_level": "REPEATABLE READ"}
        self._read = sessionmaker(
            self._engine.execution_options(**isolation), expire_on_commit=False, info={_READS_ALONE: True}
        )
        self._write = sessionmaker(self._engine.execution_options(sqlite_begin="IMMEDIATE"), expire_on_commit=False)

    @property
    def engine(self) -> Engine:
        return self._engine

    @property
    def connections_in_use(self) -> int:
        """The number of connections that sessions have at this moment."""
        assert isinstance(self._engine.pool, QueuePool)
        return self._engine.pool.checkedout()

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A session that sees one state of the database and commits nothing."""
        with self._read() as session:
            yield session

    def session_to_read(self) -> Session:
        """A session as `reading` gives it, for whoever closes it; it takes a connection with its first statement."""
        return self._read()

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """A session whose changes are committed at the end of the block, or rolled back if it raises."""
        try:
            with self._write.begin() as session:
                yield session
        except DBAPIError as error:
            self.writes.failed(error)
            raise
        if self.writes.why_not is not None:
            self.try_to_write()  # a transaction that changed nothing succeeds on a full disk, too

    def try_to_write(self) -> None:
        """Writes a row as it is; `writes` tells what became of it."""
        try:
            with self._write.begin() as session:
                session.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = version_num"))
        except DATABASE_ERRORS as error:
            if isinstance(error, DBAPIError):
                self.writes.failed(error)
        else:
            self.writes.succeeded()

    def make_file(self) -> None:
        """Makes the file of an embedded database, if it is not there; nothing else does.

        Raises:
            LogWithoutDatabase: it may only have been moved away.
            OSError: it cannot be made.
        """
        if self._file is not None:
            self._file.make()

    def close(self) -> None:
        self._engine.dispose()
        if self._file is not None:
            self._file.close()


def sees_committed(session: Session) -> bool:
    """True if a session reads alone: what it sees was committed, and nothing of it can be rolled back."""
    return bool(session.info.get(_READS_ALONE))


def _driver_of(url: str) -> str | None:
    """The first word of a database's URL, e.g. `postgresql+psycopg`; None: it is no URL."""
    try:
        return make_url(url).drivername
    except ArgumentError:
        return None


def why_not_supported(url: str) -> str | None:
    """The kinds of databases there are, where `url` is of none; None: it is of one."""
    driver = _driver_of(url)
    if driver in DRIVERS:
        return None
    # The URL may hold a password: only its first word is repeated.
    got = "no URL" if driver is None else f"{driver}://..."
    return f"the database must be sqlite:///... or postgresql+psycopg://..., got {got}"


def is_new_file(url: str) -> bool:
    """True if `url` is of a SQLite file that is not there, which `migrate` would make."""
    path = file_of(url)
    return path is not None and not path.is_file()


def is_busy(error: Exception) -> bool:
    """True if others keep the database from this one: they have all connections, or SQLite's write lock."""
    return isinstance(error, PoolTimeout) or (isinstance(error, OperationalError) and _is_locked(error.orig))


def is_unavailable(error: Exception) -> bool:
    """True if the database is out of reach for now, so that the same request may do later."""
    if isinstance(error, DBAPIError):
        # A server that goes away mid-transaction shows as other errors too, with the connection invalidated.
        return isinstance(error, OperationalError) or error.connection_invalidated or is_read_only(error)
    return isinstance(error, PoolTimeout)


def _create_engine(url: str, num_connections: int) -> Engine:
    parsed = make_url(url)
    # Pydantic's reader takes a third of the time of Python's own, which was a tenth of what a list of jobs costs.
    pool: dict[str, Any] = {"poolclass": QueuePool, "pool_size": num_connections, "max_overflow": 0}
    pool["json_deserializer"] = from_json
    if parsed.get_backend_name() != "sqlite":
        return create_engine(parsed, pool_pre_ping=True, **pool)
    engine = create_engine(parsed, connect_args={"timeout": BUSY_TIMEOUT_SECONDS}, **pool)
    event.listen(engine, "connect", _configure_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _configure_sqlite(connection: sqlite3.Connection, _record: Any) -> None:
    connection.isolation_level = None  # transactions begin in _begin_sqlite, not where the driver thinks best
    cursor = connection.cursor()
    _turn_on_wal(cursor)
    for pragma in ("synchronous=NORMAL", "foreign_keys=ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _turn_on_wal(cursor: sqlite3.Cursor) -> None:
    """Waits for another process that writes to a file not yet in WAL mode; SQLite's own timeout does not cover that.

    Raises:
        OperationalError: sqlite3's; the file stayed locked.
    """
    retry(
        lambda: cursor.execute("PRAGMA journal_mode=WAL"),
        is_temporary=_is_locked,
        give_up_seconds=BUSY_TIMEOUT_SECONDS,
        first_pause_seconds=WAL_PAUSE_SECONDS,
        longest_pause_seconds=WAL_PAUSE_SECONDS,
    )


def _is_locked(error: BaseException | None) -> bool:
    return isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode == sqlite3.SQLITE_BUSY


def _begin_sqlite(connection: Connection) -> None:
    mode = connection.get_execution_options().get("sqlite_begin", "DEFERRED")
    connection.exec_driver_sql(f"BEGIN {mode}")
