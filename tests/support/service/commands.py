"""The command line in a test's own process, whose options are read once.

`typer.testing` of Typer 0.29 builds all commands of the application again for each one that it runs, which takes longer
than most of them.
"""

from __future__ import annotations

from functools import cache

import typer.testing
from typer.main import get_command
from typer.testing import Result

from service.cli.commands import app

typer.testing._get_command = cache(get_command)  # type: ignore[attr-defined] # the module imports it under this name


def run(*arguments: str, stdin: str | bytes | None = None) -> Result:
    """Runs a command; returns its output and its exit status."""
    return typer.testing.CliRunner().invoke(app, arguments, input=stdin)


def in_one_line(text: str) -> str:
    """A message as it was before a terminal broke it into lines and drew a frame around it."""
    return " ".join(text.replace("│", " ").split())
