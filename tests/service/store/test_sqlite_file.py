"""A SQLite file that is removed, moved or replaced under connections that are open on it: nothing is lost unnoticed."""

from __future__ import annotations

import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import URL, event, text
from sqlalchemy.exc import OperationalError

from service.store.migrate import migrate, why_not_migrated
from service.store.repositories import JobRepository
from service.store.retry import write_with_retries
from service.store.session import Database, is_busy, is_new_file, is_unavailable
from service.store.sqlite_file import LogWithoutDatabase, logs_of
from service.use_cases.leases import register_worker
from tests.support.service.scenarios import NOW, submit
from tests.support.waiting import PATIENCE_SECONDS

ODD_NAME = "a b?c#d%20e&mode=memory.sqlite3"


def _url(path: Path | str) -> str:
    return URL.create("sqlite", database=str(path)).render_as_string()


def _job_ids(database: Database) -> set[str]:
    with database.reading() as session:
        return {job.id for job in JobRepository(session).page(project=None, limit=100)}


def _is_whole(path: Path) -> bool:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.fixture(params=["service.sqlite3", ODD_NAME])
def path(request: pytest.FixtureRequest, tmp_path: Path, migrated_sqlite_file: Path) -> Path:
    return Path(shutil.copyfile(migrated_sqlite_file, tmp_path / str(request.param)))


@pytest.fixture
def opened(path: Path) -> Iterator[Database]:
    """A database with some connections in its pool."""
    with closing(Database(_url(path))) as database:
        sessions = [database.session_to_read() for _ in range(3)]
        for session in sessions:
            session.execute(text("SELECT 1"))
        for session in sessions:
            session.close()
        yield database


def test_a_file_that_is_gone_is_neither_written_nor_made_until_it_is_put_back(
    opened: Database, path: Path, tmp_path: Path
) -> None:
    before = submit(opened)
    path.rename(tmp_path / "elsewhere")
    for _ in range(5):  # more than there are connections
        for use in (submit, _job_ids):
            with pytest.raises(OperationalError, match="cannot open the database file") as raised:
                use(opened)
            assert is_unavailable(raised.value)
            assert not is_busy(raised.value)
    assert not path.exists()
    assert is_new_file(opened.url)
    assert "put its file back" in str(why_not_migrated(opened))
    (tmp_path / "elsewhere").rename(path)
    assert _job_ids(opened) == {before}
    assert {before, submit(opened)} == _job_ids(opened)
    assert _is_whole(path)


def test_a_write_waits_for_a_file_that_is_gone(opened: Database, path: Path, tmp_path: Path) -> None:
    path.rename(tmp_path / "elsewhere")
    waits = threading.Event()

    def wait(_seconds: float) -> None:
        waits.set()
        time.sleep(0.01)

    writer = threading.Thread(
        target=lambda: write_with_retries(
            opened,
            lambda session: register_worker(session, host="here", pid=1, now=NOW),
            give_up_seconds=PATIENCE_SECONDS,
            sleep=wait,
        )
    )
    writer.start()
    assert waits.wait(PATIENCE_SECONDS)
    (tmp_path / "elsewhere").rename(path)
    writer.join(PATIENCE_SECONDS)
    with opened.reading() as session:
        assert session.execute(text("SELECT pid FROM workers")).scalars().all() == [1]


@pytest.mark.parametrize("is_gone_first", [False, True])
@pytest.mark.parametrize("with_logs", [False, True])
def test_another_file_in_its_place_is_used_and_the_log_of_the_former_is_not(
    is_gone_first: bool, with_logs: bool, opened: Database, path: Path, tmp_path: Path, migrated_sqlite_file: Path
) -> None:
    backup = Path(shutil.copyfile(migrated_sqlite_file, tmp_path / "backup"))
    lost = {submit(opened) for _ in range(20)}
    with closing(Database(opened.url)) as beside:  # another process's, which looks later
        assert _job_ids(beside) == lost
        path.rename(tmp_path / "former")
        if is_gone_first:
            for database in (opened, opened, opened, beside):  # no connection is left then
                with pytest.raises(OperationalError):
                    _job_ids(database)
        if not with_logs:
            for log in logs_of(path):  # the new ones may be given their inodes
                log.unlink(missing_ok=True)
        backup.rename(path)
        assert _job_ids(opened) == set()
        kept = {submit(opened)}
        logs = [log.stat().st_ino for log in logs_of(path) if log.exists()]
        assert _job_ids(beside) == kept
        assert [log.stat().st_ino for log in logs_of(path) if log.exists()] == logs != []
        kept.add(submit(beside))
        assert _job_ids(opened) == kept
        assert _is_whole(path)
    assert _is_whole(tmp_path / "former")
    with closing(Database(_url(tmp_path / "former"))) as former:
        assert _job_ids(former) == lost


def test_a_file_that_is_replaced_whenever_it_is_opened_is_out_of_reach_until_it_stays(
    opened: Database, path: Path, tmp_path: Path, migrated_sqlite_file: Path
) -> None:
    def replace(*_connection: object) -> None:
        Path(shutil.copyfile(migrated_sqlite_file, tmp_path / "backup")).rename(path)

    replace()
    event.listen(opened.engine, "connect", replace)
    for _ in range(5):  # more than there are connections
        with pytest.raises(OperationalError, match="is not the file that this connection was opened on") as raised:
            _job_ids(opened)
        assert is_unavailable(raised.value)
    event.remove(opened.engine, "connect", replace)
    assert {submit(opened)} == _job_ids(opened)


def test_a_file_that_has_the_inode_of_the_removed_one_is_another(
    opened: Database, path: Path, migrated_sqlite_file: Path
) -> None:
    submit(opened)
    path.unlink()
    for _ in range(5):
        with pytest.raises(OperationalError):
            _job_ids(opened)
    shutil.copyfile(migrated_sqlite_file, path)  # file systems give the inode that was freed last
    assert _job_ids(opened) == set()
    assert _is_whole(path)


def test_no_database_is_made_beside_the_log_of_one_that_was_moved_away(
    opened: Database, path: Path, tmp_path: Path
) -> None:
    before = submit(opened)
    path.rename(tmp_path / "elsewhere")
    with pytest.raises(LogWithoutDatabase, match=r"put the database back, or remove .*-wal"):
        migrate(opened)
    assert not path.exists()
    (tmp_path / "elsewhere").rename(path)
    migrate(opened)
    assert _job_ids(opened) == {before}


def test_a_relative_path_is_of_the_directory_that_it_was_opened_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, migrated_sqlite_file: Path
) -> None:
    shutil.copyfile(migrated_sqlite_file, tmp_path / ODD_NAME)
    monkeypatch.chdir(tmp_path)
    with closing(Database(_url(ODD_NAME))) as database:
        monkeypatch.chdir("/")
        assert _job_ids(database) == set()
        (tmp_path / ODD_NAME).unlink()
        with pytest.raises(OperationalError):
            _job_ids(database)


def test_a_link_to_the_file_is_followed(tmp_path: Path, migrated_sqlite_file: Path) -> None:
    (tmp_path / "there").mkdir()
    file = Path(shutil.copyfile(migrated_sqlite_file, tmp_path / "there/real"))
    other = Path(shutil.copyfile(migrated_sqlite_file, tmp_path / "other"))
    (tmp_path / "link").symlink_to(file)
    with closing(Database(_url(tmp_path / "link"))) as database:
        submit(database)
        other.replace(file)
        assert _job_ids(database) == set()
        submit(database)
        assert _is_whole(file)


def test_a_database_in_memory_has_no_file() -> None:
    with closing(Database("sqlite://", num_connections=1)) as database:
        database.make_file()
        assert not is_new_file(database.url)
        with database.reading() as session:
            assert session.execute(text("SELECT 1")).scalar() == 1
