"""A table of the CPU time that each test file takes: `tests/run --cpu-table=FILE`.

CPU time of a file is that of its tests' own process and of all processes below it, from the file's first test to its
last. What a process below takes that outlives its parents is lost, and so is what tests leave for a session's end.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
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


class CpuTimes:
    """A plugin of every process that runs tests; those of xdist's workers come together in the first process."""

    def __init__(self, config: pytest.Config, file: Path) -> None:
        self._config, self._file = config, file
        self._spent: dict[str, Spent] = {}
        self._began = (0.0, 0.0, 0.0)
        self._path: str | None = None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Any:
        path = _path(item)
        if path != self._path:
            self._path, self._began = path, _times()
            self._spent.setdefault(path, Spent())
        self._spent[path].num_tests += 1
        outcome = yield
        if nextitem is None or _path(nextitem) != path:
            user, system, wall = (now - then for now, then in zip(_times(), self._began, strict=True))
            self._spent[path] += Spent(0, user, system, wall)
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


def _times() -> tuple[float, float, float]:
    """User, system and wall seconds of this process and of all below it, whether they live or were waited for."""
    own = os.times()
    user, system = own.user + own.children_user, own.system + own.children_system
    for process in psutil.Process().children(recursive=True):
        try:
            times = process.cpu_times()
        except psutil.Error:  # it has just ended
            continue
        user += times.user + times.children_user
        system += times.system + times.children_system
    return user, system, time.monotonic()
