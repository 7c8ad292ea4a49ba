"""A command that somebody else wrote, as a process: its lines while it runs, and its end in any case."""

from __future__ import annotations

import codecs
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from io import IncrementalNewlineDecoder

POLL_SECONDS = 0.2
"""Time between two looks whether a command that prints nothing has ended, or is to."""
PIPE_BYTES = 2**20
"""The most that a pipe holds: what was in it is read at once."""


class RunningCommand:
    """A process whose standard output is read. Its end is its own: processes that it leaves behind, and that have its
    output open, are not waited for. But where it is ended, those that it started are, too.

    It leads a process group, so a terminal's Ctrl-C and hang-up reach only whoever runs it, and may `end` it. Nor may
    it read that terminal: its standard input is empty.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, bufsize=0, process_group=0
        )
        assert self._process.stdout is not None
        self._output = self._process.stdout
        os.set_blocking(self._output.fileno(), False)
        self._decoder = IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8")("replace"), translate=True)
        self._begun = ""
        """Of a line whose end has not come."""

    @property
    def exit_status(self) -> int | None:
        """None: it has not ended."""
        return self._process.returncode

    def lines(self, goes_on: Callable[[], bool]) -> Iterator[str]:
        """The lines of its output, until it has ended or closed it, or `goes_on` says that it is not to be read on."""
        is_open = True
        while is_open and goes_on():
            has_ended = self._process.poll() is not None  # before the look: all that it has printed is there then
            piece = self._piece(0.0 if has_ended else POLL_SECONDS)
            is_open = piece is not None and not has_ended
            yield from self._lines_of(piece or b"", is_last=not is_open)

    def wait(self, seconds: float) -> None:
        """Waits for its end, so long at most. What it still prints is read, so that it need not wait, and dropped."""
        self._drop_until(lambda: self._process.poll() is not None, time.monotonic() + seconds)

    def end(self, seconds: float) -> None:
        """Ends it and what is left of its group, if it has not ended: asks them to, and after so long makes them.

        It is asked first, and the others once it is gone. Its helpers, such as the workers of a data loader, must not
        end while it saves a checkpoint; but if it was a shell, what it was waiting for is to save one, too.
        """
        deadline = time.monotonic() + seconds
        with self._process:
            if self._process.poll() is not None:
                return
            try:
                self._process.terminate()
                self._drop_until(lambda: self._process.poll() is not None, deadline)
                self._signal_group(signal.SIGTERM)
                self._drop_until(self._has_group_ended, deadline)
            finally:  # where the wait is interrupted, too
                self._signal_group(signal.SIGKILL)

    def _signal_group(self, number: int) -> bool:
        """False if there is none left in it who could be told."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)
            return True
        return False

    def _has_group_ended(self) -> bool:
        if self._process.poll() is None:
            return False
        with suppress(ChildProcessError):  # orphans are this process's where it is a container's first
            while os.waitpid(-self._process.pid, os.WNOHANG) != (0, 0):
                pass
        return not self._signal_group(0)

    def _drop_until(self, has_ended: Callable[[], bool], deadline: float) -> None:
        is_open = True
        while not has_ended() and (left := deadline - time.monotonic()) > 0:
            if is_open:
                is_open = self._piece(min(left, POLL_SECONDS)) is not None
            else:
                time.sleep(min(left, POLL_SECONDS))

    def _piece(self, seconds: float) -> bytes | None:
        """The next piece of its output, waited for at most `seconds`; None: its output is closed."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._output, selectors.EVENT_READ)
            selector.select(seconds)
        try:
            return os.read(self._output.fileno(), PIPE_BYTES) or None
        except BlockingIOError:
            return b""

    def _lines_of(self, piece: bytes, *, is_last: bool) -> Iterator[str]:
        *lines, self._begun = (self._begun + self._decoder.decode(piece, final=is_last)).split("\n")
        yield from lines
        if is_last and self._begun:
            yield self._begun
