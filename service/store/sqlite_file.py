"""The file of an embedded database: made by `migrate` alone, and watched by the connections that are open on it.

SQLite goes on writing to a file that was removed or replaced, and all of that is lost. So a connection notes the file
that it is opened on, and before each use it is given up if the name has become another file's, or nobody's.

The newest transactions are in a log beside the file, `-wal` with its index `-shm`. SQLite finds it by its name and
takes it for the log of whatever file is there: the log of a file that was replaced would be written into the new one.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from sqlalchemy import Engine, event, make_url
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.pool import ConnectionPoolEntry

from service.errors import ServiceError

FileId: TypeAlias = tuple[int, int]
"""The device and the inode of a file: its names may change meanwhile."""

LOGS = ("-wal", "-shm", "-journal")
"""The ends of the names that files beside a database have; what they hold belongs to it."""

_OPENED = "opened_file"
"""A key in the notes of a connection: the `FileId` of what it is opened on."""
_GIVEN_UP = "given_up"
"""A key in the lasting notes of a pool's place for a connection: what was there last was given up."""
_ONLY_HOLDS = getattr(os, "O_PATH", None)
"""Opens a file for nothing but to hold it: to close a descriptor of another kind would drop SQLite's locks. None: not
on this system; macOS gives no inode twice."""


class LogWithoutDatabase(ServiceError):
    """The log of a database lies there, but not the database."""


def file_of(url: str) -> Path | None:
    """The file of a SQLite database, absolute; None: it is another kind of database, or one in memory."""
    parsed = make_url(url)
    name = parsed.database
    if parsed.get_backend_name() != "sqlite" or not name or name == ":memory:" or "uri" in parsed.query:
        return None
    return Path(name).absolute()


def uri_of(path: Path, mode: str) -> str:
    """The name under which SQLite opens a file in a mode of its own: `ro`, or `rw`, which makes none."""
    return f"{path.absolute().as_uri()}?mode={mode}"


def logs_of(path: Path) -> list[Path]:
    """The files that SQLite may put beside a database, whether they are there or not."""
    file = path.resolve()  # beside what a link points to
    return [file.with_name(f"{file.name}{end}") for end in LOGS]


@dataclass(frozen=True, slots=True)
class _Pin:
    """A file that is held, so that no other is given its `FileId` before it is let go, whatever becomes of its name."""

    id: FileId
    descriptor: int | None

    @classmethod
    def of(cls, path: Path) -> _Pin:
        """Raises: OSError."""
        if _ONLY_HOLDS is None:
            status, descriptor = path.stat(), None
        else:
            descriptor = os.open(path, _ONLY_HOLDS)
            status = os.fstat(descriptor)
        return cls((status.st_dev, status.st_ino), descriptor)

    def let_go(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)


class SqliteFile:
    """The file of one database, as the connections of one engine know it. May be used by several threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._file: _Pin | None = None
        """The file that connections were opened on last."""
        self._logs: dict[Path, _Pin] = {}
        """Its logs, as far as they are known."""

    def make(self) -> None:
        """Makes the file, for its user alone, and its directory, where they are not there. SQLite gives what it puts
        beside the file the same mode.

        Raises:
            LogWithoutDatabase: it is not there, but its log is: it may only have been moved away.
            OSError: it cannot be made.
        """
        if self.path.exists():
            return
        if logs := [str(log) for log in logs_of(self.path) if log.exists()]:
            raise LogWithoutDatabase(
                f"there is no database at {self.path}, but its log is there: put the database back, or remove "
                f"{' and '.join(logs)} to begin with an empty one"
            )
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):  # made by another process just now
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))

    def watch(self, engine: Engine) -> None:
        """Makes an engine open this file, and only if it exists. To be called once the engine knows what else is to be
        done with a new connection: the log is there after that."""
        event.listen(engine, "do_connect", self._open)
        event.listen(engine, "connect", self._note_logs)
        event.listen(engine, "checkout", self._check)

    def close(self) -> None:
        """Lets the file go; connections that are opened later hold it anew."""
        with self._lock:
            self._let_go()

    def _let_go(self) -> None:
        for pin in (self._file, *self._logs.values()):
            if pin is not None:
                pin.let_go()
        self._file, self._logs = None, {}

    def _open(self, _dialect: Any, record: ConnectionPoolEntry, arguments: list[Any], options: dict[str, Any]) -> None:
        try:
            # What is there before it is opened: if it is replaced in between, the connection is given up for nothing.
            record.info[_OPENED] = self._hold()
        except OSError as cause:
            raise _cannot_open(f"cannot open the database file {self.path}: {cause.strerror}") from cause
        arguments[0], options["uri"] = uri_of(self.path, "rw"), True

    def _hold(self) -> FileId:
        with self._lock:
            found = _Pin.of(self.path)
            if self._file is not None and self._file.id == found.id:
                found.let_go()
                return found.id
            try:
                _remove({log: pin.id for log, pin in self._logs.items()})
            except OSError:
                found.let_go()
                raise
            self._let_go()
            self._file = found
            return found.id

    def _note_logs(self, _connection: sqlite3.Connection, record: ConnectionPoolEntry) -> None:
        with self._lock:
            found = dict[Path, _Pin]()
            for log in logs_of(self.path):
                with suppress(FileNotFoundError):
                    found[log] = _Pin.of(log)
            if self._file is not None and record.info[_OPENED] == self._file.id == _id_of(self.path):
                found, self._logs = self._logs, found
            # else they may be of another file, whose logs are begun after it has taken the name
            for pin in found.values():
                pin.let_go()

    def _check(self, connection: sqlite3.Connection, record: ConnectionPoolEntry, _lent: object) -> None:
        notes = record.record_info
        assert notes is not None, "the place of a connection in a pool has notes"
        if _id_of(self.path) == record.info[_OPENED]:
            notes.pop(_GIVEN_UP, None)
            return
        with suppress(sqlite3.Error):  # so that the former file, if it is kept elsewhere, is whole without its log
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        why = f"{self.path} is not the file that this connection was opened on"
        if notes.pop(_GIVEN_UP, False):
            raise _cannot_open(why)  # the pool tries no third time, and its own error would be no failure of a database
        notes[_GIVEN_UP] = True
        raise DisconnectionError(why)


def _cannot_open(why: str) -> sqlite3.OperationalError:
    """The driver's error, as it raises it itself where it cannot open a file."""
    error = sqlite3.OperationalError(why)
    error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
    return error


def _id_of(path: Path) -> FileId | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _remove(logs: dict[Path, FileId]) -> None:
    """Removes the logs of a file that was replaced, and not those that another process has since begun."""
    for directory in {log.parent for log in logs}:
        with _alone_in(directory):
            for log, of_old in logs.items():
                if _id_of(log) == of_old:
                    log.unlink()


@contextmanager
def _alone_in(directory: Path) -> Iterator[None]:
    """Keeps other processes from what they would do in such a block, too."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
