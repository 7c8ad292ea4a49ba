"""What commands that run a part of the service have in common: the settings and their options."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.errors import ServiceError

if TYPE_CHECKING:
    from service.settings import Settings

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
        raise BadSetting(f"{field} ({ENV_PREFIX}{field.upper()}): {first['msg']}, got {got}") from None
