"""Common to commands that run a part of the service: the settings, their options, and the database."""

from __future__ import annotations

from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.errors import ServiceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from service.settings import Settings
    from service.store.session import Database

DataDir = Annotated[
    Path | None,
    typer.Option(help="Holds the embedded database, checkpoints, logs; by default in your home."),
]
DatabaseUrl = Annotated[str | None, typer.Option(help="sqlite:///... or postgresql+psycopg://...; else embedded.")]


class BadSetting(ServiceError):
    """An environment variable or an option has an impossible value."""


def read_settings(**options: object) -> Settings:
    """The settings of the environment, and of the options that were given.

    Raises:
        BadSetting: one of them has an impossible value.
    """
    from pydantic import ValidationError

    from service.settings import ENV_PREFIX, Settings
    from trainers.storage import masked

    try:
        return Settings(**{name: value for name, value in options.items() if value is not None})  # type: ignore[arg-type]
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        got = masked(repr(first["input"]))  # a URI may hold a secret
        variable = f"{ENV_PREFIX}{first['loc'][0]}".upper()
        raise BadSetting(f"{field} ({variable}): {first['msg']}, got {got}") from None


@contextmanager
def own_database(data_dir: Path | None, database_url: str | None) -> Iterator[Database]:
    """The service's database, with this version's tables. The embedded one is made, or brought up to date, as `serve`
    would do.

    Raises:
        CannotServe: the database fails, in the block too, or `migrate` has yet to prepare it.
    """
    from service.server.serve import CannotServe, faults_told, migrate_database, open_database
    from service.store.migrate import why_not_migrated

    settings = read_settings(data_dir=data_dir, database_url=database_url)
    with closing(open_database(settings)) as database:
        if settings.database_url is None and settings.database_url_file is None:
            migrate_database(database)
        elif not_migrated := why_not_migrated(database):
            raise CannotServe(not_migrated)
        with faults_told(database):
            yield database
