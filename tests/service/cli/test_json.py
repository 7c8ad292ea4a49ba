"""`--json`, which every command has."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from service.cli.commands import app
from service.store.session import Database
from tests.support.service.commands import in_one_line, run
from tests.support.service.live import finished_job

UNTIL_STOPPED = "runs until it is stopped, and logs"
WITHOUT = {
    "serve": UNTIL_STOPPED,
    "api": UNTIL_STOPPED,
    "worker": UNTIL_STOPPED,
    "optuna-dashboard": UNTIL_STOPPED,
    "agent": "runs until no trial is left, and shows what the program prints that trains them",
    "demo": "shows on the screen how a job goes",
    "completion": "prints a program for a shell",
    "fingerprint": "prints JSON without it",
}
"""The commands that have no `--json`, and why."""


def test_every_command_has_it_but_those_that_say_why_not() -> None:
    assert {name for name, options in _commands(get_command(app)) if "--json" not in options} == WITHOUT.keys()


def _commands(command: Any, *words: str) -> Iterator[tuple[str, list[str]]]:
    """The commands below one, each with its options."""
    if hasattr(command, "commands"):
        for word, inner in command.commands.items():
            yield from _commands(inner, *words, word)
    else:
        yield " ".join(words), [option for parameter in command.params for option in parameter.opts]


def _answered(*arguments: str) -> Any:
    """Parses the output of a command with `--json`, which holds nothing else."""
    result = run(*arguments, "--json")
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return json.loads(result.stdout)


@pytest.mark.usefixtures("url")
def test_commands_that_write_files_tell_where_they_are_and_how_large(sqlite_database: Database, tmp_path: Path) -> None:
    job_id = finished_job(sqlite_database)
    for command, told in (
        (("export", job_id, "--table", "measurements"), {"job_id": job_id, "table": "measurements"}),
        (("report", job_id), {"job_id": job_id}),
        (("init", "digits-mlp"), {"workload": "digits-mlp"}),
    ):
        path = tmp_path / command[0]
        assert _answered(*command, "-o", str(path)) == {
            **told,
            "path": str(path),
            "num_bytes": path.stat().st_size,
        }
        again = run(*command, "-o", str(path))
        assert (again.exit_code, again.stdout) == (1, "")
        assert again.stderr == f"shampoo-tuner: {path} is there already; --overwrite replaces it\n"
        assert _answered(*command, "-o", str(path), "--overwrite")["path"] == str(path)
    refused = run("export", job_id, "--format", "tensorboard", "-o", str(tmp_path / "board"), "--overwrite")
    assert (refused.exit_code, "a directory takes each job once" in in_one_line(refused.stderr)) == (2, True)
    for name in ("export", "report"):
        refused = run(name, job_id, "-o", "-", "--json")
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert "- and --json would both print to standard output: give a file" in in_one_line(refused.stderr)
    assert _answered("init", "digits-mlp") == yaml.safe_load((tmp_path / "init").read_text())


def test_what_is_printed_without_a_service_is_told_too() -> None:
    assert list(_answered("token", "generate")) == ["token"]
    new = _answered("workload", "new", "my-model")
    assert (new["workload"], new["file"]) == ("my_model:MyModel", "my_model.py")
    assert "class MyModel" in new["source"]
