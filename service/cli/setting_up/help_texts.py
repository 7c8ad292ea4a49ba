"""Help on commands: in groups by what they are for, with no type where an option takes no value."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


class Panel(StrEnum):
    """The groups of the list of commands."""

    FOLLOW = "Submit a job and follow it"
    ANSWER = "Take its answer"
    STEER = "Steer it"
    MODELS = "Models, search spaces and trials of your own"
    SERVICE = "Run the service"


class Command(TyperCommand):
    """A command whose flags are shown without a type, whose arguments are in capitals, and whose paragraphs are as wide
    as the terminal."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.help = _unbroken(self.help)

    def get_params(self, ctx: Any) -> Any:
        return _as_shown(super().get_params(ctx))


class Commands(TyperGroup):
    """A group of commands with the same."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.help = _unbroken(self.help)

    def get_params(self, ctx: Any) -> Any:
        return _as_shown(super().get_params(ctx))


def add_commands(app: typer.Typer, added: typer.Typer, panel: Panel, *, name: str | None = None) -> None:
    """Adds commands to an application, in one group of its list.

    Args:
        name: that of a command under which they stand; None: each is one by itself.
    """
    _shape(added, None if name else panel)
    if name is None:
        app.add_typer(added)
    else:
        app.add_typer(added, name=name, cls=Commands, rich_help_panel=panel.value)


def _shape(app: typer.Typer, panel: Panel | None) -> None:
    """Makes all commands of an application look like ours; those at its top are shown in this group."""
    for command in app.registered_commands:
        command.rich_help_panel = panel
        if command.cls in (None, TyperCommand):  # none of its own
            command.cls = Command
    for group in app.registered_groups:
        group.cls = Commands
        if panel is not None:
            group.rich_help_panel = panel.value
        if group.typer_instance is not None:
            _shape(group.typer_instance, None)


def _as_shown(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if parameter.metavar is not None:
            continue
        if parameter.param_type_name == "argument":
            parameter.metavar = parameter.name.upper()
        elif parameter.is_flag:
            parameter.metavar = ""
    return parameters


def _unbroken(text: str | None) -> str | None:
    """The text with one line a paragraph: where it stands in the code, its lines end elsewhere."""
    if text is None:
        return None
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
