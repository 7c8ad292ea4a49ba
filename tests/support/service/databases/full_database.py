"""A database without room, as on a full disk: reported by itself, or by the kernel."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import event

from service.store.session import Database
from tests.support.file_size_limit import files_end_at
from tests.support.service.scenarios import submit


@contextmanager
def full(database: Database) -> Iterator[None]:
    """Makes transactions that need room fail with the database's own error for a full disk.

    SQLite may allocate no further page, and notices when it needs one; PostgreSQL is made to raise the error at once.
    """
    of_sqlite = database.engine.dialect.name == "sqlite"
    hook = ("connect", _have_no_further_page) if of_sqlite else ("begin", _raise_disk_full)
    database.engine.dispose()
    event.listen(database.engine, *hook)
    try:
        yield
    finally:
        event.remove(database.engine, *hook)
        database.engine.dispose()


def _have_no_further_page(connection: Any, _record: Any) -> None:
    connection.execute("PRAGMA max_page_count=1")  # as many as there are, at least


def _raise_disk_full(connection: Any) -> None:
    connection.exec_driver_sql("DO $$ BEGIN RAISE 'could not extend file' USING ERRCODE = 'disk_full'; END $$")


@contextmanager
def full_disk(database: Database) -> Iterator[None]:
    """Makes each append to the log of a SQLite database fail, where each write goes first, by a limit on the size of
    this process's files."""
    submit(database)  # so that there is a log, larger than the output of tests
    log = Path(f"{database.engine.url.database}-wal")
    with files_end_at(log.stat().st_size):
        yield
