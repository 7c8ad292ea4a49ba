"""The room of the database: its own disk, or that of its server, can be full while it still answers."""

from __future__ import annotations

import sqlite3

from sqlalchemy.exc import DBAPIError

_DISK_FULL = "53100"
"""The state that PostgreSQL gives its errors of a full disk."""


def is_full(error: BaseException) -> bool:
    """True if the database found no room for what was to be written: what is in it can still be read."""
    if not isinstance(error, DBAPIError):
        return False
    # SQLite's further codes for the same have it in their lowest byte.
    code = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF
    return code == sqlite3.SQLITE_FULL or getattr(error.orig, "sqlstate", None) == _DISK_FULL
