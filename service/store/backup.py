"""Copies of an embedded database: made while it is in use, checked, and put in its place.

A copy is written beside its name-to-be, checked and flushed, and takes the name at once: whoever is killed meanwhile
leaves nothing under that name, and the next one removes what lies beside it.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from service.errors import ServiceError
from service.store.migrate import DatabaseIsNewer, known_revisions
from service.store.session import VERSION_TABLE
from service.store.sqlite_file import file_of, logs_of, uri_of

LOCK_SECONDS = 5.0
"""A database that is in use for longer is that of a running service."""
_PART = ".part"


class CannotBackUp(ServiceError):
    """There is no copy, and nothing has changed."""


@dataclass(frozen=True, slots=True)
class Backup:
    """A copy that was checked."""

    revision: str
    """The revision of its schema."""
    num_jobs: int
    num_bytes: int


def back_up(database_url: str, file: Path, *, overwrites: bool) -> Backup:
    """Copies the database as it is at this moment, also while others write to it; only the owner can read the copy.

    Raises:
        CannotBackUp: it is no embedded database, or there is none, or the file is there, or cannot be written.
    """
    source = _file_of(database_url)
    if not source.is_file():
        raise CannotBackUp(f"there is no database at {source}")
    if file.exists() and not overwrites:
        raise CannotBackUp(f"{file} is there already; --overwrite replaces it")
    with _refusals(f"cannot copy {source} to {file}"), _part_of(file) as part:
        with closing(_open(source, _reading_mode(source))) as origin, closing(sqlite3.connect(part)) as copy:
            origin.backup(copy)
            copy.execute("PRAGMA journal_mode=DELETE")  # one file, whatever the original has
        made = _check(part)
        _put(part, file, overwrites=overwrites)
    return made


def restore(database_url: str, file: Path, *, overwrites: bool) -> Backup:
    """Puts a backup in the place of the database.

    Raises:
        CannotBackUp: the file is no backup that this version can read, or the database is there, or in use.
    """
    target = _file_of(database_url)
    if not file.is_file():
        raise CannotBackUp(f"there is no backup at {file}")
    if target.exists() and not overwrites:
        raise CannotBackUp(f"{target} is there already; --overwrite replaces it with what the backup holds")
    with _refusals(f"cannot restore {file} to {target}"), _directory(target.parent), _part_of(target) as part:
        with closing(_open(file, "ro")) as origin, closing(sqlite3.connect(part)) as copy:
            origin.backup(copy)
        found = _check(part)
        if found.revision not in known_revisions():
            raise CannotBackUp(f"{file}: {DatabaseIsNewer(found.revision)}")
        with _unused(target, overwrites=overwrites):
            _put(part, target, overwrites=overwrites)
    return found


def _file_of(database_url: str) -> Path:
    path = file_of(database_url)
    if path is None:
        raise CannotBackUp("only the embedded database can be copied; for PostgreSQL there are pg_dump and pg_restore")
    return path


def _reading_mode(source: Path) -> str:
    """The mode in which SQLite reads a database. It makes files beside it for that, which a file system that can only
    be read does not allow. There it does without if it is told that nobody else writes, which is so where no log lies
    beside the database."""
    is_at_rest = not any(log.exists() for log in logs_of(source))
    return "ro&immutable=1" if is_at_rest and os.statvfs(source).f_flag & os.ST_RDONLY else "ro"


def _open(path: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(uri_of(path, mode), uri=True, timeout=LOCK_SECONDS)


@contextmanager
def _refusals(what: str) -> Iterator[None]:
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        raise CannotBackUp(f"{what}: {error}") from error


@contextmanager
def _directory(path: Path) -> Iterator[None]:
    """Makes a directory that is not there; where the block fails it is gone again, if nothing else is in it."""
    was_there = path.exists()
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        if not was_there:
            with suppress(OSError):
                path.rmdir()
        raise


@contextmanager
def _part_of(file: Path) -> Iterator[Path]:
    """A new, empty file beside `file` that its owner alone can read; it is gone at the end of the block."""
    for left in file.parent.glob(f".{file.name}.*{_PART}*"):
        owner = left.name.removeprefix(f".{file.name}.").partition(".")[0]
        if not (owner.isdecimal() and psutil.pid_exists(int(owner))):
            left.unlink(missing_ok=True)
    part = file.with_name(f".{file.name}.{os.getpid()}{_PART}")
    os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        yield part
    finally:
        for path in (part, *part.parent.glob(f"{part.name}-*")):
            path.unlink(missing_ok=True)


def _check(path: Path) -> Backup:
    """Checks that the file is a whole database of ours, and reads what it says of itself."""
    with closing(_open(path, "ro")) as connection:
        [(verdict,), *_] = connection.execute("PRAGMA integrity_check")
        if verdict != "ok" or connection.execute("PRAGMA foreign_key_check").fetchone() is not None:
            raise CannotBackUp(f"the database is damaged: {verdict if verdict != 'ok' else 'rows refer to none'}")
        [revision] = connection.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone() or [""]
        if not revision:
            raise CannotBackUp("the database has no tables of shampoo-tuner")
        [num_jobs] = connection.execute("SELECT count(*) FROM jobs").fetchone()
    return Backup(revision=revision, num_jobs=num_jobs, num_bytes=path.stat().st_size)


def _put(part: Path, file: Path, *, overwrites: bool) -> None:
    """Gives a written file its name; both are on the disk then."""
    descriptor = os.open(part, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    if overwrites:
        part.replace(file)
    else:
        os.link(part, file)  # refuses to replace one that came meanwhile
    directory = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


@contextmanager
def _unused(target: Path, *, overwrites: bool) -> Iterator[None]:
    """Keeps others from the database that is to be replaced. It is whole in its one file then: a log that stayed beside
    it would be taken for the log of the new one."""
    logs = logs_of(target)
    if not target.exists():
        if any(log.exists() for log in logs) and not overwrites:
            raise CannotBackUp(f"{target} is not there, but its log is, {logs[0]}: --overwrite removes that")
        for log in logs:
            log.unlink(missing_ok=True)
        yield
        return
    with closing(sqlite3.connect(target, timeout=LOCK_SECONDS, isolation_level=None)) as connection:
        try:
            connection.execute("PRAGMA journal_mode=DELETE")
            connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            raise CannotBackUp(f"{target} is in use: stop the service first") from error
        except sqlite3.DatabaseError:  # it is damaged, which may be why it is to be replaced
            for log in logs:
                log.unlink(missing_ok=True)
        yield
