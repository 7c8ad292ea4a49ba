"""Waiting for what other processes and threads do.

Tests wait for events, and a limit exists only to end a hang: a machine may be many times slower than the one that a
test was written on, and busy with other things. A test of speed compares two things.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

PATIENCE_SECONDS = 600.0
"""For events that take some seconds on a quiet machine."""
LONG_PATIENCE_SECONDS = 3600.0
"""For events that take minutes there: an installation, a job of many trials."""

IMPORT_SECONDS = 1.6
"""How long a new interpreter takes to import torch on two quiet cores."""


def wait_until(
    condition: Callable[[], object], what: str, *, seconds: float = PATIENCE_SECONDS, more: Callable[[], str] = str
) -> None:
    """Waits until `condition` holds.

    Args:
        what: the awaited event, for the error.
        more: further text for the error, such as logs.

    Raises:
        AssertionError: it does not hold after `seconds`.
    """
    started = looked = time.monotonic()
    while not condition():
        now = time.monotonic()
        if now - started > seconds:
            raise AssertionError(f"waited {seconds:.0f} s in vain: {what}\n{more()}")
        # Checking takes time that the awaited processes could use.
        time.sleep(max(0.02, min(50 * (now - looked), 0.5)))
        looked = time.monotonic()


@contextmanager
def started(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A process, with text in its pipes. When the context is left, in any way, it is ended, and its pipes are
    closed."""
    with subprocess.Popen(command, text=True, **options) as process:
        try:
            yield process
        finally:
            process.kill()  # does nothing if it has been waited for


def slowness() -> float:
    """How many times slower this machine is at the moment than two quiet cores; at least 1."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
    return max(1.0, (time.monotonic() - began) / IMPORT_SECONDS)


def run_in_a_session(command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs a command in a session of its own; the whole session is killed if it takes too long, because ranks outlive
    torchrun."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with started(command, start_new_session=True, **pipes, **options) as process:
        try:
            output, errors = process.communicate(timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, process.returncode, output, errors)
