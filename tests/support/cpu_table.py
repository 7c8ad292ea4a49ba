"""A table of the CPU time that each test file takes: `tests/run --cpu-table=FILE`.

The CPU time of a file is that of its tests' own process and of all processes below it, from the file's first test to
its last. If a process below outlives its parents, its time during the last file is lost.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import psutil
import pytest

TABLE_LENGTH = 25


@dataclass
class Spent:
    """The time that the tests of a file have taken."""

    num_tests: int = 0
    user_seconds: float = 0.0
    system_seconds: float = 0.0
    wall_seconds: float = 0.0

    @property
    def cpu_seconds(self) -> float:
        return self.user_seconds + self.system_seconds

    def __add__(self, other: Spent) -> Spent:
        return Spent(*(mine + its for mine, its in zip(vars(self).values(), vars(other).values(), strict=True)))


@dataclass(frozen=True, slots=True)
class _Times:
    """Seconds of a process, and of those that it has waited for."""

    user: float
    system: float
    children_user: float
    children_system: float


class CpuTimes:
    """A plugin of every process that runs tests; the times of xdist's workers are collected in the first process."""

    def __init__(self, config: pytest.Config, file: Path) -> None:
        self._config, self._file = config, file
        self._spent: dict[str, Spent] = {}
        self._at_first: dict[psutil.Process, _Times] = {}
        self._began = 0.0
        self._path: str | None = None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Any:
        path = _path(item)
        if path != self._path:
            self._path, self._at_first, self._began = path, _times(), time.monotonic()
            self._spent.setdefault(path, Spent())
        self._spent[path].num_tests += 1
        outcome = yield
        if nextitem is None or _path(nextitem) != path:
            user, system = _spent(self._at_first, _times())
            self._spent[path] += Spent(0, user, system, time.monotonic() - self._began)
            self._path = None
        return outcome

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        for path, spent in json.loads(getattr(node, "workeroutput", {}).get("cpu_times", "{}")).items():
            self._spent[path] = self._spent.get(path, Spent()) + Spent(**spent)

    def pytest_sessionfinish(self) -> None:
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput["cpu_times"] = json.dumps({p: vars(spent) for p, spent in self._spent.items()})
        else:
            self._file.write_text(table(self._spent))


def table(spent: dict[str, Spent]) -> str:
    """The most expensive files and the sum of all, in Markdown."""
    dearest = sorted(spent.items(), key=lambda entry: -entry[1].cpu_seconds)
    others = dearest[TABLE_LENGTH:]
    rows = [(f"`{path}`", of_file) for path, of_file in dearest[:TABLE_LENGTH]]
    if others:
        rows.append((f"{len(others)} others", _sum(of_file for _, of_file in others)))
    rows.append(("sum", _sum(spent.values())))
    lines = ["| File | Tests | User s | System s | CPU s | Wall s |", "|---|--:|--:|--:|--:|--:|"]
    for name, of_file in rows:
        seconds = (of_file.user_seconds, of_file.system_seconds, of_file.cpu_seconds, of_file.wall_seconds)
        lines.append(f"| {name} | {of_file.num_tests} | {' | '.join(f'{each:.1f}' for each in seconds)} |")
    return "\n".join(lines) + "\n"


def _sum(entries: Iterable[Spent]) -> Spent:
    return sum(entries, Spent())


def _path(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _spent(before: dict[psutil.Process, _Times], now: dict[psutil.Process, _Times]) -> tuple[float, float]:
    """User and system seconds that processes have taken between two snapshots.

    If a process ended meanwhile and its parent waited for it, the parent has its whole time, from which the part before
    the first snapshot is subtracted. If nobody waited for it, its time is nowhere, and nothing is subtracted.
    """
    none = _Times(0.0, 0.0, 0.0, 0.0)
    gone = [times for process, times in before.items() if process not in now]
    then = [before.get(process, none) for process in now]
    user, system = (
        sum(map(own, now.values()))
        - sum(map(own, then))
        + max(0.0, sum(map(waited, now.values())) - sum(map(waited, then)) - sum(own(t) + waited(t) for t in gone))
        for own, waited in (
            (attrgetter("user"), attrgetter("children_user")),
            (attrgetter("system"), attrgetter("children_system")),
        )
    )
    return user, system


def _times() -> dict[psutil.Process, _Times]:
    """The seconds of this process and of each below it that lives, and of those that each has waited for."""
    this = psutil.Process()
    found = {}
    for process in (this, *this.children(recursive=True)):
        with suppress(psutil.Error):  # it has just ended
            times = process.cpu_times()
            found[process] = _Times(times.user, times.system, times.children_user, times.children_system)
    return found
