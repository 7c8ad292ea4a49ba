"""Notes on the ends of a run's workers on its own cluster. Their parent alone is told how they ended: their template
notes it in a file for each, and whoever has lost one reads it. Nothing is known of workers that no template has forked.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from service.scheduler.cluster.worker_start import SOCKET_VARIABLE

DIRECTORY_NAME = "exits"
PATIENCE_SECONDS = 2.0
"""Time for a template to be told of an end that Ray tells, too: both hear of it at once."""
POLL_SECONDS = 0.05
"""Time between two looks for a note, by judgement: it is there at once, or a moment later."""


def directory_beside(address: str) -> Path:
    """The directory of what a template notes that listens at a socket of this path."""
    return Path(address).with_name(DIRECTORY_NAME)


def note(directory: Path, process: int, exit_status: int) -> None:
    """Notes how a process ended; negative: the signal that killed it. Where there is no room for it, nobody knows."""
    with suppress(OSError):
        new = directory / f"{process}.new"
        new.write_text(str(exit_status))
        new.replace(directory / str(process))


def forget(directory: Path, process: int) -> None:
    """Forgets how an earlier process of this number ended."""
    (directory / str(process)).unlink(missing_ok=True)


def exit_status(process: int, *, patience_seconds: float = PATIENCE_SECONDS) -> int | None:
    """The exit status of a worker of this process's cluster that has ended; negative: the signal that killed it.

    None: it is not known here.
    """
    address = os.environ.get(SOCKET_VARIABLE)
    directory = None if address is None else directory_beside(address)
    if directory is None or not directory.is_dir():
        return None
    deadline = time.monotonic() + patience_seconds
    while True:
        with suppress(FileNotFoundError):
            return int((directory / str(process)).read_text())
        if time.monotonic() >= deadline:
            return None
        time.sleep(POLL_SECONDS)
