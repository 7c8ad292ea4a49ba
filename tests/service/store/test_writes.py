"""Readiness to write, by the last write: its failures are the database's own, and told once, in words for anybody."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import make_url, text
from sqlalchemy.exc import DBAPIError, OperationalError

from service.store import session as store_session
from service.store.repositories import JobRepository
from service.store.session import Database, is_busy, is_unavailable
from service.store.writes import is_full
from tests.support.service.databases.full_database import full, full_disk
from tests.support.service.scenarios import submit


def _write_nothing(database: Database) -> None:
    with database.writing() as session:
        JobRepository(session).page(project=None, limit=1)


def test_a_disk_that_takes_no_more_is_known_and_told_once_until_a_write_succeeds(
    sqlite_database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    why_not = "the disk of the database fails, or a quota or limit of it is reached"
    assert sqlite_database.writes.why_not is None
    with full_disk(sqlite_database):
        for _ in range(3):
            with pytest.raises(OperationalError, match="disk I/O error"):
                submit(sqlite_database)
            _write_nothing(sqlite_database)  # which succeeds, and tells nothing
            assert sqlite_database.writes.why_not == why_not
    submit(sqlite_database)
    assert sqlite_database.writes.why_not is None
    assert [record.getMessage() for record in caplog.records if record.name == "service.store.writes"] == [
        f"writing fails: {why_not}: disk I/O error",
        "writing succeeds again",
    ]


def test_a_write_that_others_keep_from_the_database_is_no_failure_of_it(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_session, "BUSY_TIMEOUT_SECONDS", 0.01)
    with closing(Database(sqlite_database.url)) as other, sqlite_database.writing() as session:
        JobRepository(session).page(project=None, limit=1)
        with pytest.raises(OperationalError) as raised:
            _write_nothing(other)
        assert is_busy(raised.value)
        assert other.writes.why_not is None


def test_a_wrong_statement_is_no_failure_of_the_database(database: Database) -> None:
    for statement in ("INSERT INTO projects (name) VALUES (NULL)", "INSERT INTO nothing VALUES (1)"):
        with pytest.raises(DBAPIError), database.writing() as session:
            session.execute(text(statement))
    assert database.writes.why_not is None


@pytest.mark.processes
@pytest.mark.parametrize("database_kind", ["postgresql"])
def test_a_server_that_only_reads_is_known(migrated_database_url: str) -> None:
    options = {"options": "-c default_transaction_read_only=on"}
    url = make_url(migrated_database_url).update_query_dict(options).render_as_string(hide_password=False)
    with closing(Database(url)) as database:
        _write_nothing(database)
        assert database.writes.why_not is None
        with pytest.raises(DBAPIError) as raised:
            submit(database)
        assert is_unavailable(raised.value)  # as a standby is until it is promoted: worth another try
        _write_nothing(database)
        assert database.writes.why_not == "the database can only be read"


def test_a_database_that_is_out_of_reach_is_known(tmp_path: Path) -> None:
    for url in (f"sqlite:///{tmp_path}/nothing", "postgresql+psycopg://nobody@127.0.0.1:1/x?connect_timeout=2"):
        with closing(Database(url)) as database:
            with pytest.raises(OperationalError):
                _write_nothing(database)
            assert database.writes.why_not == "the database is out of reach"


def test_a_database_without_room_is_full_and_may_do_later(database: Database) -> None:
    with full(database), pytest.raises(DBAPIError) as raised, database.writing() as session:
        session.execute(text("CREATE TABLE larger (content TEXT)"))
    assert is_full(raised.value)
    assert is_unavailable(raised.value)


def test_a_database_out_of_reach_and_a_wrong_statement_are_not_full(database: Database) -> None:
    gone = Database("postgresql+psycopg://nobody@127.0.0.1:1/nothing?connect_timeout=2")
    with pytest.raises(DBAPIError) as raised, gone.reading() as session:
        session.execute(text("SELECT 1"))
    gone.close()
    assert not is_full(raised.value)
    with pytest.raises(DBAPIError) as raised, database.reading() as session:
        session.execute(text("SELECT nothing FROM nowhere"))
    assert not is_full(raised.value)
    assert not is_full(OSError())
