"""All that the service keeps is for its user alone."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.private_files import keep_files_private, why_not_private
from service.scheduler.disk import begin_log, log_of
from service.settings import Settings
from service.store.session import Database
from tests.support.service.scenarios import submit


@pytest.fixture(autouse=True)
def _open_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_database_and_its_directory_are_private_from_their_creation(tmp_path: Path) -> None:
    file = tmp_path / "data" / "tuner.sqlite3"
    database = Database(f"sqlite:///{file}")
    database.make_file()
    with database.engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE t (x)")
        assert {path.name: _mode(path) for path in file.parent.iterdir()} == {
            "tuner.sqlite3": 0o600,
            "tuner.sqlite3-shm": 0o600,
            "tuner.sqlite3-wal": 0o600,
        }
    database.close()
    assert _mode(file.parent) == 0o700


def test_logs_and_all_that_is_made_later_are_private(tmp_path: Path) -> None:
    log = log_of(tmp_path, "job_1")
    begin_log(log)
    assert _mode(log.parent) == 0o700
    keep_files_private(Settings(data_dir=tmp_path))
    log.write_text("")
    (tmp_path / "checkpoints" / "job_1").mkdir(parents=True)
    assert (_mode(log), _mode(tmp_path / "checkpoints")) == (0o600, 0o700)


def test_what_others_may_read_is_told_and_left(
    tmp_path: Path, sqlite_database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    submit(sqlite_database)
    file = Path(sqlite_database.engine.url.database or "")
    tmp_path.chmod(0o755)
    file.chmod(0o640)
    with caplog.at_level(logging.WARNING):
        keep_files_private(Settings(data_dir=tmp_path, database_url=sqlite_database.url))
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == len(set(told)) >= 2
    assert f"{tmp_path} is open to other users of this machine (mode 0755): chmod go-rwx {tmp_path}" in told[0]
    assert f"{file} is open to other users of this machine (mode 0640)" in told[1]
    assert (_mode(tmp_path), _mode(file)) == (0o755, 0o640)
    tmp_path.chmod(0o700)
    assert why_not_private(tmp_path) is None
    assert why_not_private(tmp_path / "nothing") is None
