"""A PostgreSQL database for one test after the other; each test finds it like new."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from sqlalchemy import insert, select, text

from service.store.models import Base
from service.store.session import Database
from service.store.writes import Writes

_READERS_SECONDS = 5.0
"""Far longer than a statement takes; connections that a test has left open are not waited for any longer."""
_DISCONNECT = """
    SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""
_RESTART = "SELECT setval(seqrelid, seqstart, false) FROM pg_sequence"
_SCHEMA = """
    SELECT
      (SELECT array_agg(pg_attribute::text ORDER BY attrelid, attnum)
       FROM pg_attribute JOIN pg_class ON attrelid = pg_class.oid WHERE relnamespace = 'public'::regnamespace),
      (SELECT array_agg(oid ORDER BY oid) FROM pg_constraint WHERE connamespace = 'public'::regnamespace)
"""
"""The columns of tables and indexes, and the constraints, by unique numbers."""


class EmptiedDatabases:
    """Lends a migrated database, and removes the rows that its borrower has left: less work than copying its three
    hundred files again. Its engine keeps its compiled statements.

    A database whose tables were changed is dropped, and the next borrower gets a new one.
    """

    def __init__(self, make: Callable[[], AbstractContextManager[str]]) -> None:
        """Args: make: gives the URL of a new one, with the rows that migrations make, and drops it in the end."""
        self._make = make
        self._kept: _EmptiedDatabase | None = None
        self._resources = ExitStack()

    @contextmanager
    def lent(self) -> Iterator[Database]:
        """A database, to one borrower at a time."""
        if self._kept is None:
            self._kept = _EmptiedDatabase(self._resources.enter_context(self._make()))
        emptied = self._kept
        yield emptied.database
        if not emptied.renew():
            self.close()

    def close(self) -> None:
        """Drops the database."""
        self._kept = None
        self._resources.close()


class _EmptiedDatabase:
    def __init__(self, url: str) -> None:
        """Args: url: of a migrated database, with the rows that migrations make."""
        self.database = Database(url)
        tables = Base.metadata.sorted_tables
        self._empty = "; ".join([*(f'DELETE FROM "{table.name}"' for table in reversed(tables)), _RESTART])
        with self.database.engine.connect() as connection:
            self._schema = connection.execute(text(_SCHEMA)).one()
            found = ((table, connection.execute(select(table)).mappings().all()) for table in tables)
            self._first = [(table, [dict(row) for row in rows]) for table, rows in found if rows]
        self.database.close()

    def renew(self) -> bool:
        """Restores the database, without open connections; False: its tables were changed."""
        self._wait_for_readers()
        self.database.close()
        self.database.writes = Writes()
        with self.database.engine.begin() as connection:
            connection.execute(text(_DISCONNECT))
            is_unchanged = bool(connection.execute(text(_SCHEMA)).one() == self._schema)
            if is_unchanged:
                connection.exec_driver_sql(self._empty)
                for table, rows in self._first:
                    connection.execute(insert(table), rows)
        self.database.close()
        return is_unchanged

    def _wait_for_readers(self) -> None:
        """Lets threads of a service that has ended give their connections back, which would stay open otherwise."""
        until = time.monotonic() + _READERS_SECONDS
        while self.database.connections_in_use and time.monotonic() < until:
            time.sleep(0.01)
