"""Sessions: the one state that a reading one sees, and waiting for a writer, on both databases."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

from sqlalchemy import text

from service.store.repositories import JobRepository
from service.store.session import Database
from tests.support.service.scenarios import submit


def test_a_reading_session_sees_one_state_of_the_database(database: Database) -> None:
    submit(database)
    with database.reading() as session:
        before = JobRepository(session).page(project=None, limit=5)
        submit(database)
        assert len(JobRepository(session).page(project=None, limit=5)) == len(before) == 1
    with database.reading() as session:
        assert len(JobRepository(session).page(project=None, limit=5)) == 2


def test_a_new_sqlite_file_that_another_process_writes_to_is_waited_for(tmp_path: Path) -> None:
    path, found = tmp_path / "new.sqlite3", list[object]()

    def open_it() -> None:
        database = Database(f"sqlite:///{path}")
        with database.reading() as session:
            found.extend(session.execute(text("PRAGMA journal_mode")).scalars())
            found.extend(session.execute(text("SELECT a FROM t")).scalars())
        database.close()

    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("CREATE TABLE t (a)")
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("INSERT INTO t VALUES (1)")
    opener = threading.Thread(target=open_it)
    opener.start()
    opener.join(timeout=0.2)  # long enough for one that does not wait to fail
    assert opener.is_alive()
    writer.execute("COMMIT")
    writer.close()
    opener.join()
    assert found == ["wal", 1]
