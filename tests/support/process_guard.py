"""The guard of the fast ring: a test without the right marker fails if it starts a process."""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import Any

import pytest

from tests.support.lanes import lane

_STARTS: tuple[tuple[Any, str], ...] = (
    (subprocess.Popen, "__init__"),  # `run`, `asyncio` and browsers go through it
    (BaseProcess, "start"),  # also of those that a fork server starts, or that are spawned
    *((os, name) for name in ("fork", "forkpty", "posix_spawn", "posix_spawnp", "system")),  # `os.spawnv` forks
)
"""The objects with which Python starts a process, and the names of their functions."""


class ProcessGuard:
    """A plugin that notices which test starts a process, and fails the test if its lane does not allow that.

    It wraps the functions that start one. An audit hook would also be called for them, but for each `id`, too, and so
    for each tensor that is a key of a dict: tests of the optimizer took a twentieth longer.
    """

    def __init__(self) -> None:
        self._is_unmarked = False
        self._started: list[str] = []
        self._patch = pytest.MonkeyPatch()
        for owner, name in _STARTS:
            heard = self._heard(getattr(owner, name))
            heard.__module__ = getattr(owner, "__module__", owner.__name__)  # not `posix`: pickles find it in `os`
            self._patch.setattr(owner, name, heard)

    def pytest_unconfigure(self) -> None:
        self._patch.undo()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        self._started, self._is_unmarked = [], lane(item) == "fast"
        try:
            return (yield)
        finally:
            self._is_unmarked = False

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, nextitem: pytest.Item | None) -> Any:
        if nextitem is None:  # the last test ends what the whole session shared: a database server, a browser
            self._is_unmarked = False
        outcome = yield
        if self._started:
            pytest.fail(
                "this test starts a process without saying so: mark it, or its file (pytestmark), with"
                " pytest.mark.processes; with pytest.mark.services or pytest.mark.patient if it starts services or Ray"
                f" (tests/README.md). It started: {'; '.join(self._started)}",
                pytrace=False,
            )
        return outcome

    def _heard(self, start: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(start)
        def heard(*arguments: Any, **options: Any) -> Any:
            result = start(*arguments, **options)
            if self._is_unmarked:
                self._started.append(f"{start.__qualname__}{arguments!r:.200}")
            return result

        return heard
