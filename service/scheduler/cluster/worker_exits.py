"""Notes about how a run's workers ended, on its own cluster. Only their parent learns that: their template writes it to
a file for each, which is read when a worker is lost. Workers that were not forked by a template have no note.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from service.scheduler.cluster.worker_start import SOCKET_VARIABLE

DIRECTORY_NAME = "exits"
PATIENCE_SECONDS = 2.0
"""Time for a template to notice an end that Ray has reported: both notice it at about the same time."""
POLL_SECONDS = 0.05
"""Time between two checks for a note, by judgement: it is there at once, or a moment later."""


def directory_beside(address: str) -> Path:
    """The directory for the notes of the template that listens at the socket of this path."""
    return Path(address).with_name(DIRECTORY_NAME)


def note(directory: Path, process: int, exit_status: int) -> None:
    """Notes how a process ended; negative: the signal that killed it. If the disk is full, there is no note."""
    with suppress(OSError):
        new = directory / f"{process}.new"
        new.write_text(str(exit_status))
        new.replace(directory / str(process))


def forget(directory: Path, process: int) -> None:
    """Removes the note of an earlier process with this number."""
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
