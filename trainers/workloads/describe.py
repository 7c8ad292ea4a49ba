"""Describes workloads in a process of its own, so that whoever asks imports nothing of anyone's code.

    python -m trainers.workloads.describe my_package.models:MyModel

prints the description, or why there is none, as a line of `trainers.workloads.messages`; with `--built-with OPTIONS` it
also builds the workload. `ask` and `ask_for_installed` are the other end: they start that command where this process
runs and imports from, and read what it prints. `trainers.identity.asking` asks others in the same way.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self, TypeVar

from trainers.config import InvalidConfig, Json
from trainers.processes.starting import Started, Streams, start
from trainers.workload.description import WorkloadDescription
from trainers.workload.user_workload import explain, printable
from trainers.workloads.messages import Refused, Tellable, answer, answer_from_line
from trainers.workloads.registry import describe, description_from, entry_points, load

T = TypeVar("T")

TIMEOUT_SECONDS = 120.0
"""Time for a workload's module to be imported. torch alone takes seconds, on a busy machine half a minute."""

_WAIT_SECONDS = 0.2
"""Time between two questions whether to wait on for an answer."""
_MAX_ANSWER_BYTES = 10_000_000
"""Far above any description: more is no answer, but a module that prints without end."""
_SHOWN_OF_OUTPUT = 300
"""Last characters of the output of a process that failed: the line that says why."""


@dataclass(frozen=True, slots=True)
class Installed:
    """The descriptions that entry points of installed packages name, and the problems of the others."""

    descriptions: tuple[WorkloadDescription, ...]
    problems: Mapping[str, str]
    """The reasons why entry points give no description, by name."""

    def to_json(self) -> dict[str, Any]:
        """The descriptions and problems, as `from_json` reads them."""
        return {
            "descriptions": [description.to_json() for description in self.descriptions],
            "problems": dict(self.problems),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The workloads that `to_json` gave."""
        return cls(tuple(map(WorkloadDescription.from_json, data["descriptions"])), data["problems"])


class DescriptionKilled(InvalidConfig):
    """The process that was to describe a workload was killed from outside, as by a machine short of memory: the same
    question may be answered later."""


class DescriptionTooSlow(InvalidConfig):
    """The process did not answer in time: on a machine that is less busy it may."""


class DescriptionUnwanted(InvalidConfig):
    """Nobody wants the answer any more."""


def ask(
    name: str, *, built_with: Mapping[str, Json] | None = None, timeout_seconds: float = TIMEOUT_SECONDS
) -> WorkloadDescription:
    """The description of the workload `name`, of whatever kind.

    Args:
        built_with: options with which it is built, too, which reads its data; None: it is not.

    Raises:
        InvalidConfig: there is none, or it cannot be built; the message says why, e.g. with the error of the import.
        DescriptionTooSlow: not in this time.
        DescriptionKilled: its process was killed.
    """
    building = [] if built_with is None else ["--built-with", json.dumps(built_with)]
    return told_by_process(
        [*building, "--", name],
        WorkloadDescription.from_json,
        what=f"{name}: its import",
        timeout_seconds=timeout_seconds,
    )


def ask_for_installed() -> Installed:
    """The workloads that installed packages bring.

    Raises:
        InvalidConfig: the process did not answer, e.g. because a package ends it or hangs.
    """
    return told_by_process(["--installed"], Installed.from_json, what="the installed workloads: their import")


def environment_of_children() -> dict[str, str]:
    """Environment variables with which another Python imports from where this one does, its directory first."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path.cwd()), *filter(None, sys.path)])}


def told_by_process(
    arguments: Sequence[str],
    read: Callable[[Any], T],
    *,
    what: str,
    field: str = "workload",
    timeout_seconds: float = TIMEOUT_SECONDS,
    module: str = "trainers.workloads.describe",
    given: bytes = b"",
    may_wait: Callable[[], bool] = lambda: True,
) -> T:
    """The answer that `python -m module` tells by `trainers.workloads.messages`, started where this process runs and
    imports from.

    Args:
        arguments: those of the module.
        read: what makes the answer of JSON.
        what: the process does, for the message of an error.
        field: the field of the error where the process refuses to tell and names none.
        given: what the module finds at its standard input: arguments are no place for much.
        may_wait: asked again and again; False ends the process.

    Raises:
        InvalidConfig: it refuses, or tells nothing; then of field `workload`, whatever is asked.
        DescriptionTooSlow: it does not answer in this time.
        DescriptionKilled: it was killed.
        DescriptionUnwanted: it may not be waited for any more.
    """
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as noise:
        with tempfile.TemporaryFile() as source:
            source.write(given)
            source.seek(0)
            streams = Streams(source.fileno(), output.fileno(), noise.fileno())
            process = start(module, arguments, streams, environment=environment_of_children())
        try:
            status = _status_of(process, timeout_seconds, may_wait, what)
        except TimeoutError as expired:
            raise DescriptionTooSlow("workload", f"{what} takes more than {timeout_seconds:g} s") from expired
        finally:
            process.end()
        output.seek(0)
        try:
            told = answer_from_line(output.read(_MAX_ANSWER_BYTES), read)
        except ValueError as error:
            how = f"exit status {status}" if status >= 0 else f"signal {signal.Signals(-status).name}"
            said = printable(_end_of(noise), limit=_SHOWN_OF_OUTPUT)
            refusal = DescriptionKilled if status == -signal.SIGKILL else InvalidConfig
            raise refusal("workload", f"{what} ended the process with {how}{f': {said}' if said else ''}") from error
    if isinstance(told, Refused):
        raise InvalidConfig(told.field or field, told.reason)
    return told


def _status_of(process: Started, timeout_seconds: float, may_wait: Callable[[], bool], what: str) -> int:
    """The exit status of a process once it has ended.

    Raises:
        TimeoutError: it has not ended in this time.
        DescriptionUnwanted: it may not be waited for any more.
    """
    deadline = time.monotonic() + timeout_seconds
    while (left := deadline - time.monotonic()) > _WAIT_SECONDS:
        with suppress(TimeoutError):
            return process.wait(_WAIT_SECONDS)
        if not may_wait():
            raise DescriptionUnwanted("workload", f"{what} is not wanted any more")
    return process.wait(max(left, 0.0))


def _end_of(noise: IO[bytes]) -> str:
    noise.seek(max(0, noise.seek(0, os.SEEK_END) - _SHOWN_OF_OUTPUT))
    return noise.read().decode(errors="replace")


@contextmanager
def _refusing(problem: str) -> Iterator[None]:
    """Makes errors of a user's own code refusals that begin with a problem."""
    try:
        yield
    except InvalidConfig:
        raise
    except (Exception, SystemExit) as error:
        raise InvalidConfig("workload", f"{problem}: {explain(error)}") from error


def _described(name: str, built_with: Mapping[str, Json] | None) -> WorkloadDescription:
    with _refusing(f"{name} cannot be described"):
        description = describe(name)
    if built_with is not None:
        with _refusing(f"{name} cannot be built"):
            load(name, built_with)
    return description


def _installed() -> Installed:
    descriptions: dict[str, WorkloadDescription] = {}
    problems: dict[str, str] = {}
    for entry_point in entry_points():
        try:
            description = description_from(entry_point)
        except InvalidConfig as error:
            problems[entry_point.name] = error.message
        else:
            descriptions.setdefault(description.name, description)
    return Installed(tuple(descriptions.values()), problems)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; 0 if it could say what was asked."""
    parser = argparse.ArgumentParser(
        prog="python -m trainers.workloads.describe", description="Describes workloads as JSON."
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("name", nargs="?", help="a workload's name, or module:Class")
    what.add_argument("--installed", action="store_true", help="all that installed packages bring")
    parser.add_argument("--built-with", type=json.loads, metavar="OPTIONS", help="build it with these, as JSON, too")
    options = parser.parse_args(arguments)

    def find() -> Tellable:
        return _installed() if options.installed else _described(options.name, options.built_with)

    return answer(find)


if __name__ == "__main__":
    gc.disable()  # it imports and ends: looking for garbage, now and at the end, takes a third of its time with torch
    status = main()
    gc.freeze()
    sys.exit(status)
