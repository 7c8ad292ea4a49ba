"""The API as a process of its own, and what it costs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.support.postgresql import PostgresqlServer, controlled_postgresql_server


@dataclass(frozen=True, slots=True)
class ApiProcess:
    """An API that answers."""

    address: str
    process: psutil.Process

    def own_seconds(self) -> float:
        """Processor seconds of the process itself."""
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def all_seconds(self) -> float:
        """Processor seconds of the process, its descendants, and those of them that have ended and were waited for."""
        return _tree_seconds(self.process)

    def resident_bytes(self) -> int:
        """Memory of the process itself."""
        return int(self.process.memory_info().rss)


@dataclass(frozen=True, slots=True)
class ServedDatabase:
    """A database, and the server that has it."""

    url: str
    server: psutil.Process | None
    """The postmaster of PostgreSQL; None: SQLite has no process of its own."""

    def seconds(self) -> float:
        """Processor seconds of the server with all its processes."""
        return 0.0 if self.server is None else _tree_seconds(self.server)


def _tree_seconds(root: psutil.Process) -> float:
    seconds = 0.0
    for each in (root, *root.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # what has just ended counts among its parent's children
            times = each.cpu_times()
            seconds += times.user + times.system + times.children_user + times.children_system
    return float(seconds)


@contextmanager
def serving(database_url: str, directory: Path) -> Iterator[ApiProcess]:
    """An API process on that database."""
    environment = {
        **os.environ,
        "SHAMPOO_TUNER_DATABASE_URL": database_url,
        "SHAMPOO_TUNER_DATA_DIR": str(directory),
        "SHAMPOO_TUNER_PORT": "0",
    }
    with subprocess.Popen(
        [sys.executable, "-m", "service", "api"], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            address = next(word for line in process.stdout for word in line.split() if word.startswith("http://"))
            yield ApiProcess(address, psutil.Process(process.pid))
        finally:
            process.terminate()


@contextmanager
def served_database(kind: str, directory: Path, *, keeps: bool = False) -> Iterator[ServedDatabase]:
    """A database: `sqlite` in the directory, or `postgresql` with a server of its own.

    Args:
        keeps: whether it stays in the directory; what is there already is taken.
    """
    if kind == "sqlite":
        yield ServedDatabase(f"sqlite:///{directory / 'load.sqlite3'}", None)
    elif keeps:
        server = PostgresqlServer(directory / "postgresql", keeps_data=True)
        try:
            yield ServedDatabase(server.url, server.process)
        finally:
            server.close()
    else:
        with controlled_postgresql_server() as server:
            yield ServedDatabase(server.url, server.process)
