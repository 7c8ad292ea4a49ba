"""Help as it is read in a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
import typer
from typer.core import TyperGroup

from service.cli.commands import app
from service.cli.setting_up.help_texts import Panel
from tests.support.service.commands import run


def commands(group: object, *names: str) -> Iterator[tuple[str, ...]]:
    """The names of all commands, below others too."""
    yield names
    if isinstance(group, TyperGroup):
        for name, command in group.commands.items():
            yield from commands(command, *names, name)


@pytest.mark.parametrize("names", list(commands(typer.main.get_command(app))), ids=" ".join)
def test_help_has_no_types_of_flags_and_no_broken_lines(
    names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    told = run(*names, "--help").stdout
    assert "<bool>" not in told
    lines = [line.rstrip() for line in told.splitlines()]
    assert max(map(len, lines)) <= 80
    prose = [line for line in lines if line.startswith(" ") and not line.startswith(" Usage:")]
    for line, following in pairwise(lines):
        if line in prose and following in prose:  # the next word had no room
            assert len(line) + 1 + len(following.split()[0]) > 79, (line, following)


def test_commands_stand_in_groups_by_what_they_are_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    told = run("--help").stdout
    places = [told.index(panel) for panel in Panel]
    assert places == sorted(places)
    assert "─ Commands" not in told
    follow, answer = told.index("Lists jobs, newest first."), told.index("Prints the best recommended config")
    assert told.index(Panel.FOLLOW) < follow < told.index(Panel.ANSWER) < answer < told.index(Panel.STEER)
    assert "Exit status" not in told


def test_what_says_which_service_is_asked_comes_after_what_a_command_has_of_its_own() -> None:
    told = run("trials", "--help").stdout
    assert told.index("--order-by") < told.index("The service that is asked") < told.index("--url")
    assert "JOB" in told
    assert "[NAME]" in run("recommend", "--help").stdout
