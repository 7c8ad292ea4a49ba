"""Asking a service from the command line: its address, the job and trial in question, and the line that answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from service.hosts import DEFAULT_URL
from service.inert import one_line

if TYPE_CHECKING:
    from service.client import Client

__all__ = ["DEFAULT_URL", "JobId", "Token", "TrialNumber", "Url", "client_at", "say"]

Url = Annotated[str, typer.Option(envvar="SHAMPOO_TUNER_URL", help="The service's address.")]
Token = Annotated[
    str | None,
    typer.Option(
        help="Your token; better in SHAMPOO_TUNER_TOKEN, or in a file that SHAMPOO_TUNER_TOKEN_FILE names: other users "
        "of this machine see the options of a command.",
        show_default=False,
    ),
]
JobId = Annotated[str, typer.Argument(metavar="JOB", help="A job's id.")]
TrialNumber = Annotated[int, typer.Argument(metavar="TRIAL", min=0, help="The trial's number.")]


def client_at(url: str, token: str | None = None) -> Client:
    """A client of the service at an address that a user gave.

    Args:
        token: None: that of the environment, if there is one.
    """
    from service.client import Client

    if not url.startswith(("http://", "https://")):
        raise typer.BadParameter(f"{url!r} must begin with http:// or https://", param_hint="--url")
    try:
        return Client(url, token=token)
    except ValueError as error:
        raise typer.BadParameter(f"{url!r}: {error}", param_hint="--url") from error


def say(text: str, *, err: bool = False) -> None:
    """Prints one line; the terminal obeys nothing in it."""
    typer.echo(one_line(text), err=err)
