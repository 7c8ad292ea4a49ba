"""Databases of other programs: what opens one so that nothing is written to it, and why one cannot be read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import URL, create_engine, inspect, make_url
from sqlalchemy.exc import DBAPIError, NoSuchModuleError, SQLAlchemyError

from service.errors import InvalidInput

SQLITE_HEADER = b"SQLite format 3\x00"
"""Every SQLite file begins with it."""
CONNECT_TIMEOUT_SECONDS = 10
"""Time after which a server of PostgreSQL that does not answer is given up; its driver would wait for two minutes."""
_MEMORY = ("", ":memory:")
_URI = "file:"
"""Begins the name of a SQLite file that is a URI with options of SQLite."""


@dataclass(frozen=True, slots=True)
class ForeignDatabase:
    """A database that another program keeps."""

    shown: str
    """Its URL as messages may have it, without password and options."""
    url: str = field(repr=False)
    """Opens it: for SQLite, only to read."""
    engine_options: dict[str, Any] = field(repr=False)
    """Arguments of the engine, with which PostgreSQL refuses to write."""
    secrets: tuple[str, ...] = field(repr=False)
    """Passwords in the URL, which no message repeats."""

    def has_tables(self, names: Collection[str]) -> bool:
        """True if all of these tables are there.

        Raises:
            InvalidInput: the database cannot be read.
        """
        with self.faults_told():
            engine = create_engine(self.url, **self.engine_options)
            try:
                return set(names) <= set(inspect(engine).get_table_names())
            finally:
                engine.dispose()

    @contextmanager
    def faults_told(self) -> Iterator[None]:
        """Wraps what reads the database.

        Raises:
            InvalidInput: in place of an error of SQLAlchemy, of the driver, or of what is read.
        """
        try:
            yield
        except NoSuchModuleError as error:
            raise InvalidInput(self.shown, "SQLAlchemy knows no such kind of database") from error
        except ImportError as error:
            raise InvalidInput(self.shown, f"its driver is not installed: {error}") from error
        except (SQLAlchemyError, OSError, ValueError, RuntimeError) as error:
            raise InvalidInput(self.shown, self._without_secrets(_first_line(error))) from error

    def _without_secrets(self, text: str) -> str:
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text


def is_sqlite(path: Path) -> bool:
    """True if the file begins as SQLite's do.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        return file.read(len(SQLITE_HEADER)) == SQLITE_HEADER


def foreign_database(url: str) -> ForeignDatabase:
    """The database at a URL; it is not opened yet, and no file is made.

    Raises:
        InvalidInput: it is no URL, or there is no such SQLite file.
    """
    first_word = f"{url.partition('://')[0]}://..."
    try:
        given = make_url(url)
    except (SQLAlchemyError, ValueError) as error:  # the latter: the port is no number, but may be a password
        raise InvalidInput(first_word, "is no URL of a database") from error
    if "@" in (given.host or ""):
        # What stands before it is the end of a password, which the driver would show as a part of the host.
        raise InvalidInput(first_word, "has an @ in its user or password, which is written %40")
    if given.get_backend_name() == "sqlite" and not given.host:
        name = given.database or ""
        if name.startswith(_URI):
            return _sqlite(name, shown=url, query=given.query)
        if name in _MEMORY:
            raise InvalidInput(url, "is no file: a path follows sqlite:///")
        if not Path(name).is_file():
            raise InvalidInput(url, "there is no such file")
        return _sqlite(Path(name).absolute().as_uri(), shown=url, query=given.query)
    shown, options = given.set(query={}).render_as_string(), dict[str, Any]()
    if given.get_backend_name() == "postgresql":
        given = given.set(drivername="postgresql+psycopg")  # the one that is installed with the service
        options["execution_options"] = {"postgresql_readonly": True}
        if "connect_timeout" not in given.query:
            options["connect_args"] = {"connect_timeout": CONNECT_TIMEOUT_SECONDS}
    secrets = (given.password, given.query.get("password"))
    return ForeignDatabase(
        shown,
        given.render_as_string(hide_password=False),
        options,
        tuple(secret for secret in secrets if isinstance(secret, str) and secret),
    )


def foreign_sqlite_file(path: Path) -> ForeignDatabase:
    """The database in a SQLite file that is there."""
    return _sqlite(path.absolute().as_uri(), shown=str(path), query={})


def _sqlite(name: str, *, shown: str, query: Mapping[str, str | tuple[str, ...]]) -> ForeignDatabase:
    opened = URL.create("sqlite", database=name, query={**query, "mode": "ro", "uri": "true"})
    return ForeignDatabase(shown, opened.render_as_string(), {}, ())


def _first_line(error: Exception) -> str:
    """The words of an error; for a database's error those of its driver, without the statement."""
    said = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return str(said).partition("\n")[0] or type(said).__name__
