"""A disk that takes no more, as the kernel tells this process: by its limit of the size of files."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from service.store.session import Database
from tests.support.service.scenarios import submit


@contextmanager
def full_disk(database: Database) -> Iterator[None]:
    """Whoever appends to the log of a SQLite database, where each write goes first, fails."""
    submit(database)  # there is a log, larger than what tests print
    log = Path(f"{database.engine.url.database}-wal")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
