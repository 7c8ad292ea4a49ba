"""The API as a process of its own, and what it costs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.support.postgresql import postgresql_server


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
        times = [each.cpu_times() for each in (self.process, *self.process.children(recursive=True))]
        return float(sum(each.user + each.system + each.children_user + each.children_system for each in times))

    def resident_bytes(self) -> int:
        """Memory of the process itself."""
        return int(self.process.memory_info().rss)


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
def database_url(kind: str, directory: Path) -> Iterator[str]:
    """The URL of a new database: `sqlite` in the directory, or `postgresql` with a server of its own."""
    if kind == "sqlite":
        yield f"sqlite:///{directory / 'load.sqlite3'}"
        return
    with postgresql_server() as url:
        yield url
