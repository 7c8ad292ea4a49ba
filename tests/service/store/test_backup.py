"""Backups of an embedded database: whole while others write, private, and never half there."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from service.store.backup import CannotBackUp, back_up, restore
from service.store.migrate import migrate
from service.store.repositories import JobRepository
from service.store.session import Database
from tests.support.read_only_disk import run_with_read_only_disk
from tests.support.service.commands import run
from tests.support.service.live import finished_job
from tests.support.service.scenarios import submit


def _num_jobs(url: str) -> int:
    with closing(Database(url)) as database, database.reading() as session:
        return len(JobRepository(session).page(project=None, limit=1000))


def _url(path: Path) -> str:
    return f"sqlite:///{path}"


@pytest.mark.processes
def test_a_database_at_rest_is_copied_from_a_disk_that_can_only_be_read(
    migrated_sqlite_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "disk").mkdir()
    source, copy = tmp_path / "disk/service.sqlite3", tmp_path / "copy"
    source.write_bytes(migrated_sqlite_file.read_bytes())
    with closing(sqlite3.connect(source)) as database:
        assert database.execute("PRAGMA journal_mode=WAL").fetchone() == ("wal",)
    command = [sys.executable, "-m", "service", "backup", str(copy), "--database-url", _url(source)]
    made = run_with_read_only_disk(source.parent, command)
    assert made.returncode == 0, made.stderr
    assert _num_jobs(_url(copy)) == 0


def test_a_database_that_others_write_to_is_copied_whole_and_restored(
    sqlite_database: Database, tmp_path: Path
) -> None:
    finished_job(sqlite_database)
    over = threading.Event()

    def keep_writing() -> None:
        while not over.is_set():
            submit(sqlite_database)

    writer = threading.Thread(target=keep_writing)
    writer.start()
    file, other = tmp_path / "copy", tmp_path / "elsewhere/restored.sqlite3"
    made = [back_up(sqlite_database.url, file, overwrites=True) for _ in range(5)][-1]
    over.set()
    writer.join()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert made.num_bytes == file.stat().st_size
    assert restore(_url(other), file, overwrites=False) == made
    assert stat.S_IMODE(other.stat().st_mode) == 0o600
    assert _num_jobs(_url(other)) == made.num_jobs > 0
    with closing(Database(_url(other))) as database:
        migrate(database)
        submit(database)
    assert not list(tmp_path.glob(".*"))


def test_what_is_there_is_replaced_only_if_told(sqlite_database: Database, tmp_path: Path) -> None:
    file, target = tmp_path / "copy", tmp_path / "target.sqlite3"
    file.write_text("precious")
    with pytest.raises(CannotBackUp, match="--overwrite"):
        back_up(sqlite_database.url, file, overwrites=False)
    assert file.read_text() == "precious"
    back_up(sqlite_database.url, file, overwrites=True)
    target.write_text("precious")
    with pytest.raises(CannotBackUp, match="--overwrite"):
        restore(_url(target), file, overwrites=False)
    assert target.read_text() == "precious"
    restore(_url(target), file, overwrites=True)  # it was no database, and so cannot be one in use
    assert _num_jobs(_url(target)) == 0
    new = tmp_path / "new" / "target.sqlite3"
    restore(_url(new), file, overwrites=False)
    assert stat.S_IMODE(new.parent.stat().st_mode) == 0o700


def test_a_database_in_use_is_not_replaced(sqlite_database: Database, tmp_path: Path) -> None:
    file = tmp_path / "copy"
    back_up(sqlite_database.url, file, overwrites=False)
    submit(sqlite_database)  # which leaves a connection open
    with pytest.raises(CannotBackUp, match="in use"):
        restore(sqlite_database.url, file, overwrites=True)
    assert _num_jobs(sqlite_database.url) == 1
    sqlite_database.close()
    restore(sqlite_database.url, file, overwrites=True)
    assert _num_jobs(sqlite_database.url) == 0


def test_the_log_of_a_database_that_is_gone_is_not_taken_for_that_of_the_backup(
    sqlite_database: Database, tmp_path: Path
) -> None:
    file = tmp_path / "copy"
    back_up(sqlite_database.url, file, overwrites=False)
    submit(sqlite_database)  # which leaves a connection open
    Path(str(sqlite_database.engine.url.database)).unlink()
    with pytest.raises(CannotBackUp, match="its log is"):
        restore(sqlite_database.url, file, overwrites=False)
    restore(sqlite_database.url, file, overwrites=True)
    assert _num_jobs(sqlite_database.url) == 0


@pytest.mark.parametrize("damage", ["cut", "overwritten", "foreign", "newer"])
def test_a_damaged_or_foreign_file_is_refused_and_nothing_changes(
    sqlite_database: Database, tmp_path: Path, damage: str
) -> None:
    finished_job(sqlite_database)
    file, target = tmp_path / "copy", tmp_path / "target.sqlite3"
    back_up(sqlite_database.url, file, overwrites=False)
    content = file.read_bytes()
    if damage == "cut":
        file.write_bytes(content[: len(content) // 2])
    elif damage == "overwritten":
        file.write_bytes(content[:8192] + b"\xff" * 8192 + content[16384:])
    elif damage == "foreign":
        file.unlink()
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("CREATE TABLE other (id)")
    else:
        with closing(sqlite3.connect(file)) as connection, connection:
            connection.execute("UPDATE shampoo_tuner_version SET version_num = '9999'")
    for place in (target, tmp_path / "new" / "target.sqlite3"):
        with pytest.raises(CannotBackUp):
            restore(_url(place), file, overwrites=False)
        assert not place.exists()
    assert not (tmp_path / "new").exists()
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


@pytest.mark.processes
def test_a_kill_in_the_middle_leaves_nothing_half(sqlite_database: Database, tmp_path: Path) -> None:
    finished_job(sqlite_database)
    file = tmp_path / "copy"
    back_up(sqlite_database.url, file, overwrites=False)
    before = file.read_bytes()
    program = (
        "import os, signal, sys; from pathlib import Path; from service.store import backup\n"
        "backup._put = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)\n"
        "backup.back_up(sys.argv[1], Path(sys.argv[2]), overwrites=True)"
    )
    submit(sqlite_database)
    killed = subprocess.run([sys.executable, "-c", program, sqlite_database.url, str(file)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert file.read_bytes() == before
    assert len(list(tmp_path.glob(".copy.*"))) == 1
    assert back_up(sqlite_database.url, file, overwrites=True).num_jobs == 2
    assert not list(tmp_path.glob(".copy.*"))


def test_what_a_living_process_is_writing_stays_where_nothing_lists_processes_in_proc(
    sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exists = Path.exists
    monkeypatch.setattr(Path, "exists", lambda path: not path.is_relative_to("/proc") and exists(path))  # as on macOS
    finished_job(sqlite_database)
    of_another = tmp_path / f".copy.{os.getppid()}.part"
    of_another.touch()
    back_up(sqlite_database.url, tmp_path / "copy", overwrites=False)
    assert list(tmp_path.glob(".copy.*")) == [of_another]


@pytest.mark.processes
def test_a_command_that_is_told_to_end_removes_what_it_has_half_written_and_dies_of_the_signal(
    sqlite_database: Database, tmp_path: Path
) -> None:
    program = (
        "import signal, sys; from service.cli.commands import main; from service.store import backup\n"
        "backup._put = lambda *_, **__: signal.raise_signal(signal.SIGTERM)\n"
        "main()"
    )
    command = ["backup", str(tmp_path / "copy"), "--database-url", sqlite_database.url]
    told = subprocess.run([sys.executable, "-c", program, *command], capture_output=True, text=True, check=False)
    assert (told.returncode, told.stdout, told.stderr) == (-signal.SIGTERM, "", "")
    assert not list(tmp_path.glob("*copy*"))


def test_the_commands_say_what_they_did_and_what_is_missing(sqlite_database: Database, tmp_path: Path) -> None:
    finished_job(sqlite_database)
    file = tmp_path / "copy"
    made = run("backup", str(file), "--database-url", sqlite_database.url)
    assert made.exit_code == 0
    assert "holds 1 job," in made.output
    assert "checkpoints are not in it" in made.output
    again = run("backup", str(file), "--database-url", sqlite_database.url)
    assert again.exit_code == 1
    server = run("backup", str(file), "--database-url", "postgresql+psycopg://tuner@host/tuner")
    assert "pg_dump" in server.output
    restored = run("restore", str(file), "--data-dir", str(tmp_path / "new"))
    assert restored.exit_code == 0
    told = [
        json.loads(run(*command, "--overwrite", "--json").stdout)
        for command in (
            ("backup", str(file), "--database-url", sqlite_database.url),
            ("restore", str(file), "--data-dir", str(tmp_path / "new")),
        )
    ]
    assert told[0] == told[1]
    assert (told[0]["path"], told[0]["num_jobs"], told[0]["num_bytes"]) == (str(file), 1, file.stat().st_size)
    assert _num_jobs(_url(tmp_path / "new/shampoo-tuner.sqlite3")) == 1
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["shampoo-tuner.sqlite3"]
