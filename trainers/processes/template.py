"""Warm process: it has imported torch and what describes trials, and forks for each question (`starting.start`).

    python -m trainers.processes.template FILE_DESCRIPTOR

Another process that has imported all that (`MODULES`) is such a template from when it calls `serve`.

Each fork answers one question and ends, so that nothing stays of what it imported or left in memory, and code that has
changed is read anew. A fork is killed when the one who asked hangs up, and when this process ends. With it goes all
that it has started, also in sessions of their own; but where this process is killed, the fork's session alone. Forking
is safe only for a process with one thread that has not touched a device; where an import has started a thread, this
process ends, and others start by themselves.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trainers.processes.ending import without_taking_down_modules
from trainers.processes.orphans import adopt_orphans, children
from trainers.processes.starting import NUMBER_BYTES

MODULES = ("trainers.identity.__main__", "trainers.memory.prediction")
"""Modules that answer questions; with them comes all that they import."""
QUESTION_BYTES = 200_000
"""Most bytes of a question: above what a socket takes in one piece."""
NUM_DESCRIPTORS = 4
"""File descriptors that come with a question: standard streams, and the connection to the one who asks."""
PR_SET_PDEATHSIG = 1
"""A number of Linux (`linux/prctl.h`) that Python has no name for: the signal at the death of the parent."""


@dataclass(frozen=True, slots=True)
class _Question:
    module: str
    arguments: list[str]
    environment: dict[str, str]
    directory: str
    """The directory of the one who asks."""

    def enter(self) -> None:
        """Makes this process one that has started there, with these variables and no others."""
        os.chdir(self.directory)
        os.environ.clear()
        os.environ.update(self.environment)
        before_others = [self.directory, *filter(None, self.environment.get("PYTHONPATH", "").split(os.pathsep))]
        sys.path[:] = dict.fromkeys([*before_others, *sys.path])
        importlib.invalidate_caches()


class _Forks:
    """The forks that live, each with the connection to the one who asked."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._connections: dict[int, socket.socket] = {}
        self._wake, self._woken = os.pipe()
        for end in (self._wake, self._woken):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.set_wakeup_fd(self._woken)
        self._selector.register(self._wake, selectors.EVENT_READ)

    def next_question(self, questions: socket.socket) -> _Question | None:
        """Forks for each question, and returns in the fork, with that question; None: nobody asks any more."""
        self._selector.register(questions, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is questions:
                    content, descriptors, _, _ = socket.recv_fds(questions, QUESTION_BYTES, NUM_DESCRIPTORS)
                    if not content:
                        self._end_all()
                        return None
                    *streams, connection = descriptors
                    pid = os.fork()
                    if pid == 0:
                        self._leave(questions, connection)
                        _take(streams)
                        return _Question(**json.loads(content))
                    for stream in streams:
                        os.close(stream)
                    self._connections[pid] = socket.socket(fileno=connection)
                    self._selector.register(self._connections[pid], selectors.EVENT_READ, pid)
                elif key.data is None:  # some fork has ended
                    os.read(self._wake, 4096)
                    self._reap()
                elif key.data in self._connections:  # nobody waits for its answer any more
                    self._selector.unregister(key.fileobj)
                    _kill(key.data)

    def _reap(self) -> None:
        """Takes notice of children that have ended, forks and what they have left behind, and kills what those leave in
        turn, whose ends wake this process again."""
        with suppress(ChildProcessError):  # there are no more
            while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                # What it has started: its own number is not another one's before it is waited for.
                _kill(ended.si_pid)
                _, status = os.waitpid(ended.si_pid, 0)
                connection = self._connections.pop(ended.si_pid, None)
                self._kill_orphans()
                if connection is not None:
                    self._answer(connection, status)

    def _answer(self, connection: socket.socket, status: int) -> None:
        with connection:
            with suppress(KeyError):
                self._selector.unregister(connection)
            with suppress(OSError):  # nobody waits for it
                connection.send(os.waitstatus_to_exitcode(status).to_bytes(NUMBER_BYTES, "big", signed=True))

    def _kill_orphans(self) -> None:
        """Kills what ended forks have left: a fork that lives keeps its own orphans."""
        for pid in children() - self._connections.keys():
            _kill(pid)

    def _end_all(self) -> None:
        """Kills every fork and all that they have started, and returns when they are gone."""
        for pid in self._connections:
            _kill(pid)
        with suppress(ChildProcessError):  # there are no more
            while True:
                pid, _ = os.waitpid(-1, 0)
                self._connections.pop(pid, None)
                self._kill_orphans()

    def _leave(self, questions: socket.socket, connection: int) -> None:
        """Makes this process, a fork, one that knows nothing of the others."""
        os.setsid()
        adopt_orphans()
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.set_wakeup_fd(-1)  # not always what it gives back: asyncio clears it in forks from Python 3.12 on
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._selector.close()
        for other in self._connections.values():
            other.close()
        questions.close()
        for descriptor in (self._wake, self._woken, connection):
            os.close(descriptor)


def _kill(pid: int) -> None:
    for kill in (os.killpg, os.kill):  # it may not have a group of its own yet
        with suppress(ProcessLookupError):
            kill(pid, signal.SIGKILL)


def _take(streams: list[int]) -> None:
    for target, stream in enumerate(streams):
        os.dup2(stream, target)
    for stream in streams:
        os.close(stream)


def _import_ahead() -> bool:
    """Imports what questions need, and what torch imports with its first model; False: this process must not be forked
    from here on.
    """
    gc.disable()  # what is imported stays: to look for garbage among it, again and again, takes a sixth of the time
    *_, prediction = map(importlib.import_module, MODULES)
    prediction.predict_an_example()
    if len(list(Path("/proc/self/task").iterdir())) > 1:
        sys.stderr.write("warning: an import has started a thread: questions are answered by processes of their own\n")
        return False
    gc.collect()
    gc.freeze()
    gc.enable()
    return True


def serve(questions: socket.socket) -> int:
    """Forks for each question, until nobody asks any more. In a fork: runs the module that was asked for.

    This process must have one thread.

    Returns: the exit status of the process.
    """
    adopt_orphans()
    question = _Forks().next_question(questions)
    if question is None:
        return 0
    question.enter()
    sys.argv = [question.module, *question.arguments]
    sys.orig_argv = [sys.executable, "-m", *sys.argv]
    sys.modules.pop(question.module, None)  # it is run as the main one
    runpy.run_module(question.module, run_name="__main__", alter_sys=True)
    return 0


def main() -> int:
    """Imports, then forks for what it is asked; the exit status."""
    with socket.socket(fileno=int(sys.argv[1])) as questions:
        questions.set_inheritable(False)
        return serve(questions) if _import_ahead() else 1


if __name__ == "__main__":
    with without_taking_down_modules():
        sys.exit(main())
