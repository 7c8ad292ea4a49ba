"""The outcome of this process's last write to the database: whether its writes arrive."""

from __future__ import annotations

import logging
import sqlite3
import threading

from sqlalchemy.exc import DBAPIError, OperationalError

_FULL = "the disk of the database is full"
_FAILING = "the disk of the database fails, or a quota or limit of it is reached"
_READ_ONLY = "the database can only be read"
_DAMAGED = "the database is damaged"
_OUT_OF_REACH = "the database is out of reach"

_OF_SQLITE = {
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_IOERR: _FAILING,
    sqlite3.SQLITE_READONLY: _READ_ONLY,
    sqlite3.SQLITE_PERM: _READ_ONLY,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_CANTOPEN: _OUT_OF_REACH,
}
_OF_POSTGRESQL = {
    "53100": _FULL,  # disk_full
    "25006": _READ_ONLY,  # read_only_sql_transaction
    "58": _FAILING,  # errors of the system, as io_error
    "XX001": _DAMAGED,  # data_corrupted
    "XX002": _DAMAGED,  # index_corrupted
    "08": _OUT_OF_REACH,  # the connection failed
    "57P": _OUT_OF_REACH,  # the server was stopped, or is starting
}
"""The words for each beginning of an error's SQLSTATE."""

logger = logging.getLogger(__name__)


def why_not_written(error: DBAPIError) -> str | None:
    """The reason why the database cannot write, fit for anybody: no path and no password. None: the error gives none,
    as where others hold a lock, or a statement breaks a constraint."""
    cause = error.orig
    if isinstance(cause, sqlite3.Error):
        return _OF_SQLITE.get(getattr(cause, "sqlite_errorcode", 0) & 0xFF)  # above are the kinds of a kind
    state = getattr(cause, "sqlstate", None)
    if state is None:  # the server has said nothing
        return _OUT_OF_REACH if isinstance(error, OperationalError) or error.connection_invalidated else None
    return next((words for begin, words in _OF_POSTGRESQL.items() if state.startswith(begin)), None)


def why_it_fails(error: Exception) -> str:
    """The reason why the database failed, fit for anybody, also where it only had to be read."""
    why_not = why_not_written(error) if isinstance(error, DBAPIError) else None
    return why_not or "the database is unavailable"


def is_unexplained(error: BaseException) -> bool:
    """True if the database answered with an error that does not tell of its disk or its server."""
    return isinstance(error, DBAPIError) and why_not_written(error) is None


def is_damaged(error: BaseException) -> bool:
    """True if what is in the database's files is not what it wrote."""
    return isinstance(error, DBAPIError) and why_not_written(error) == _DAMAGED


def is_read_only(error: BaseException) -> bool:
    """True if the database takes no writes, as a standby of PostgreSQL that another server is about to follow."""
    return isinstance(error, DBAPIError) and why_not_written(error) == _READ_ONLY


def is_full(error: BaseException) -> bool:
    """True if the database found no room for what was to be written: what is in it can still be read."""
    return isinstance(error, DBAPIError) and why_not_written(error) == _FULL


class Writes:
    """The outcome of the last write. May be used by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._why_not: str | None = None

    @property
    def why_not(self) -> str | None:
        """The reason why the last write failed; None: it succeeded, or there was none."""
        return self._why_not

    def failed(self, error: DBAPIError) -> None:
        """Notes a write's error, if it tells something of the database. The first after a success is logged."""
        why_not = why_not_written(error)
        if why_not is None:
            return
        with self._lock:
            is_first, self._why_not = self._why_not is None, why_not
        if is_first:
            logger.error("writing fails: %s: %s", why_not, error.orig)

    def succeeded(self) -> None:
        """Notes a write that succeeded. The first after a failure is logged."""
        with self._lock:
            is_first, self._why_not = self._why_not is not None, None
        if is_first:
            logger.warning("writing succeeds again")
