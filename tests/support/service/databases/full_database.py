"""A database that finds no room for more, as on a full disk: by its own word, or by that of the kernel."""

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
    """Has transactions that need room end with the error that the database itself gives of a full disk.

    SQLite may have no further page, and finds that out where it needs one; PostgreSQL is made to raise it at once.
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
    """Has whoever appends to the log of a SQLite database, where each write goes first, fail: by the limit that this
    process has for the size of files."""
    submit(database)  # there is a log, larger than what tests print
    log = Path(f"{database.engine.url.database}-wal")
    with files_end_at(log.stat().st_size):
        yield
