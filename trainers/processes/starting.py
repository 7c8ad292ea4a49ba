"""Starts of Python processes that belong to the one who asks: they end with it, with all that they have started.

A process that imports torch takes seconds before it does anything. While `kept_warm` is open, or `forked_from` with a
template that somebody else has started, processes are forked from one that has imported it
(`trainers.processes.template`); else, and wherever that fails, they start by themselves.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from trainers.processes.job_code import variables_of_children

logger = logging.getLogger(__name__)

NUMBER_BYTES = 8
"""Bytes of an integer in the protocol between a process and its template: room for any exit status."""
SEND_SECONDS = 1.0
"""Time for a question to reach the template, which only a template that imports for very long keeps waiting."""
END_SECONDS = 10.0
"""Time for a killed process to be gone. It takes milliseconds."""
TEMPLATE_MODULE = "trainers.processes.template"


class Started(Protocol):
    """A process in a session of its own."""

    def wait(self, timeout_seconds: float) -> int:
        """The process's exit status; negative: the signal that ended it. Raises: TimeoutError: it has not ended yet."""

    def end(self) -> None:
        """Kills it and whatever it has started in its session, and waits until it is gone; to be called in any case."""


@dataclass(frozen=True, slots=True)
class Streams:
    """File descriptors of a process's standard streams; they stay open here."""

    stdin: int
    stdout: int
    stderr: int


def start(module: str, arguments: Sequence[str], streams: Streams, *, environment: Mapping[str, str]) -> Started:
    """Starts `python -m module arguments`, from the warm process where one is kept.

    Args:
        environment: all of its variables, but for those of the job that it is of (`job_code.children_have`).
    """
    variables = {**environment, **variables_of_children()}
    template = _kept
    if template is not None:
        try:
            return template.fork(module, arguments, streams, environment=variables)
        except OSError as error:
            logger.warning("%s starts by itself: there is no warm process to fork (%s)", module, error)
    return _Own(module, arguments, streams, environment=variables)


@contextmanager
def kept_warm(environment: Mapping[str, str]) -> Iterator[None]:
    """While it is open, `start` forks a warm process; one for all threads of this process. It starts when it is first
    asked for, or with `warm_up`.

    Args:
        environment: of the warm process.
    """
    if sys.platform != "linux" or importlib.util.find_spec("torch") is None:
        yield
        return
    warm = WarmProcess(environment)
    try:
        with forked_from(warm):
            yield
    finally:
        warm.close()


def warm_up() -> None:
    """Starts the warm process, where one is kept and has not started: it imports for two or three seconds, while this
    one goes on."""
    if isinstance(_kept, WarmProcess):
        _kept.warm_up()


@contextmanager
def forked_from(template: Template) -> Iterator[None]:
    """While it is open, `start` forks this template, in all threads of this process."""
    global _kept
    assert _kept is None, "kept warm twice"
    _kept = template
    try:
        yield
    finally:
        _kept = None


class _Own:
    """A process that starts by itself."""

    def __init__(
        self, module: str, arguments: Sequence[str], streams: Streams, *, environment: Mapping[str, str]
    ) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=streams.stdin,
            stdout=streams.stdout,
            stderr=streams.stderr,
            env=dict(environment),
            start_new_session=True,
        )

    def wait(self, timeout_seconds: float) -> int:
        try:
            return self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError from error

    def end(self) -> None:
        kill_group(self._process.pid)
        self._process.wait()


def kill_group(leader: int) -> None:
    """Kills a process that leads a group, and what else is in it; if all have ended, there is nothing to do."""
    # macOS refuses to signal a group of which all have ended and one has not been waited for.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


class _Forked:
    """A fork of the template, which kills it when this connection is closed."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._status: int | None = None

    def wait(self, timeout_seconds: float) -> int:
        if self._status is None:
            self._connection.settimeout(max(timeout_seconds, 0.001))
            answer = self._connection.recv(NUMBER_BYTES)  # all of it: such a socket keeps messages whole
            # Without an answer the template was killed, and its forks with it.
            self._status = int.from_bytes(answer, "big", signed=True) if answer else -signal.SIGKILL
        return self._status

    def end(self) -> None:
        with self._connection, suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)
            self.wait(END_SECONDS)


class Template(Protocol):
    """A process that has imported torch and forks for whoever asks."""

    def fork(
        self, module: str, arguments: Sequence[str], streams: Streams, *, environment: Mapping[str, str]
    ) -> Started:
        """A process with these variables that imports from where one with them would that starts in this directory.

        Raises: OSError: there is no process to fork, or the arguments are too long for it.
        """


class GivenTemplate:
    """This side of a template that another process has started, and that ends when this connection does."""

    def __init__(self, connection: socket.socket) -> None:
        """Takes one of two connected sockets that keep messages whole."""
        self._connection = connection
        self._connection.settimeout(SEND_SECONDS)

    def fork(
        self, module: str, arguments: Sequence[str], streams: Streams, *, environment: Mapping[str, str]
    ) -> Started:
        return _asked(lambda: self._connection, module, arguments, streams, environment)


class WarmProcess:
    """This side of the warm process: a template that is started when it is wanted, and again when it was killed."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        # What is forked must have one thread; whoever computes in a fork says with how many.
        self._environment = {**environment, "OMP_NUM_THREADS": "1"}
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None
        self._is_closed = False

    def warm_up(self) -> None:
        """Starts the process if there is none; it imports while this one goes on."""
        with self._lock, suppress(OSError):
            self._started()

    def fork(
        self, module: str, arguments: Sequence[str], streams: Streams, *, environment: Mapping[str, str]
    ) -> Started:
        with self._lock:
            return _asked(self._started, module, arguments, streams, environment)

    def _started(self) -> socket.socket:
        if self._is_closed:
            raise OSError("it is closed")
        if self._process is not None and (status := self._process.poll()) is not None:
            if status >= 0:
                raise OSError(f"it ended with status {status}")
            logger.warning("the warm process was killed by %s and starts again", signal.Signals(-status).name)
            self._process = None
        if self._process is None:
            self._connect()
        assert self._connection is not None
        return self._connection

    def _connect(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._connection.settimeout(SEND_SECONDS)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", TEMPLATE_MODULE, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=self._environment,
                start_new_session=True,
            )

    def close(self) -> None:
        """Ends the process and all its forks."""
        with self._lock:
            self._is_closed = True
            if self._connection is not None:
                self._connection.close()
            if self._process is not None:
                try:
                    self._process.wait(END_SECONDS)
                except subprocess.TimeoutExpired:  # it imports: the kernel kills its forks with it
                    self._process.kill()
                    self._process.wait()


def _asked(
    connected: Callable[[], socket.socket],
    module: str,
    arguments: Sequence[str],
    streams: Streams,
    environment: Mapping[str, str],
) -> _Forked:
    """The fork that the template at the other end of a connection makes. Raises: OSError: it cannot be asked."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    question = {"module": module, "arguments": list(arguments), "environment": dict(environment)}
    asked = json.dumps({**question, "directory": str(Path.cwd())}).encode()
    try:
        with theirs:
            handed = [streams.stdin, streams.stdout, streams.stderr, theirs.fileno()]
            socket.send_fds(connected(), [asked], handed)
    except OSError:
        ours.close()
        raise
    return _Forked(ours)


_kept: Template | None = None
"""The template of this process, which has one or none; `forked_from` sets it."""
