"""The guard of the fast ring: a test that starts a process without saying so by a marker fails."""

from __future__ import annotations

import multiprocessing.process
import sys
from typing import Any

import pytest

from tests.support.lanes import lane

_EVENTS = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system"})
"""Events of which Python tells its audit hooks before it starts a process: https://docs.python.org/3/library/audit_events.html"""


class ProcessGuard:
    """A plugin that notices which test starts a process, and fails those that are in no lane for it.

    A hook on audit events cannot be taken back, so that there is one for the life of the interpreter.
    """

    def __init__(self) -> None:
        self._is_unmarked = False
        self._started: list[str] = []
        sys.addaudithook(self._hear)
        self._watch_multiprocessing()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        self._started, self._is_unmarked = [], lane(item) == "fast"
        try:
            return (yield)
        finally:
            self._is_unmarked = False

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, nextitem: pytest.Item | None) -> Any:
        if nextitem is None:  # the last test takes down what the whole session shared: a database server, a browser
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

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._is_unmarked and event in _EVENTS:
            self._started.append(f"{event} {arguments[:2]!r:.200}")

    def _watch_multiprocessing(self) -> None:
        """Hears of processes that a fork server starts, or that are spawned: of these Python tells no audit hook."""
        start = multiprocessing.process.BaseProcess.start

        def heard_start(process: multiprocessing.process.BaseProcess) -> None:
            if self._is_unmarked:
                self._started.append(f"multiprocessing {process.name}")
            start(process)

        multiprocessing.process.BaseProcess.start = heard_start  # type: ignore[method-assign, assignment]
