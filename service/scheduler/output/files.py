"""The files that a rank's standard output and error go to: two for each trial and rank, on the rank's own machine.

Files, not pipes: a rank never waits for a reader, and its output survives its own death and that of the run.
`service.scheduler.output.reading` reads them.
"""

from __future__ import annotations

import ctypes
import logging
import os
import re
import socket
import stat
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from service.domain import OutputStream

logger = logging.getLogger(__name__)

DESCRIPTORS = {OutputStream.STDOUT: 1, OutputStream.STDERR: 2}
_NAME = re.compile(r"(\d+)-(\d+)-(\d+)-(\d+)\.(stdout|stderr)")
_LINE_BUFFERED = 1
"""`_IOLBF` of C."""


@dataclass(frozen=True, slots=True)
class OutputPlace:
    """The place where the ranks of a trial write their output."""

    parent: str | None
    """A directory; None: the directory for temporary files of each machine."""
    job_id: str
    trial: int
    """Its number in the job."""


@dataclass(frozen=True, slots=True)
class OutputPlaces:
    """The places where the ranks of a job write their output."""

    parent: str | None
    job_id: str

    def of_trial(self, number: int) -> OutputPlace:
        return OutputPlace(self.parent, self.job_id, number)


@dataclass(frozen=True, slots=True, order=True)
class SourceName:
    """The name of a file, which says whose output it is."""

    trial: int
    rank: int
    begun_ns: int
    """The time when it was begun."""
    pid: int
    """The process of the rank."""
    stream: OutputStream

    def __str__(self) -> str:
        return f"{self.trial}-{self.rank}-{self.begun_ns}-{self.pid}.{self.stream}"

    @staticmethod
    def read(name: str) -> SourceName | None:
        """The parts of a file's name; None: it is not such a file."""
        match = _NAME.fullmatch(name)
        if match is None:
            return None
        return SourceName(int(match[1]), int(match[2]), int(match[3]), int(match[4]), OutputStream(match[5]))


def local_parent(data_dir: Path) -> Path:
    """The directory where ranks on this machine write; workers on other machines may share the data directory."""
    return data_dir.absolute() / "output" / socket.gethostname()


def directory_of(parent: str | None, job_id: str) -> Path:
    """The directory of a job's files on this machine."""
    if parent is not None:
        return Path(parent) / job_id
    return Path(tempfile.gettempdir()) / f"shampoo-tuner-output-{os.geteuid()}" / job_id


def send_output_to(place: OutputPlace, rank: int) -> None:
    """Redirects the output of this process, and of those that it starts from now on, to files of their own.

    If that is impossible, the output goes where it went before: a trial does not fail because of that.
    """
    try:
        directory = directory_of(place.parent, place.job_id)
        _make_private(directory)
        opened = [
            (
                os.open(
                    directory / str(SourceName(place.trial, rank, time.time_ns(), os.getpid(), stream)),
                    os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC,
                    0o600,
                ),
                descriptor,
            )
            for stream, descriptor in DESCRIPTORS.items()
        ]
    except OSError as error:
        logger.warning("what rank %d prints is not kept: %s", rank, error)
        return
    flush_output()
    os.environ.setdefault("PYTHONUNBUFFERED", "1")  # for data loaders, which are killed when their trial ends
    for file, descriptor in opened:
        os.dup2(file, descriptor)
        os.close(file)


def flush_output() -> None:
    """Flushes Python's and C's buffers. C's standard output is line-buffered from then on, because a killed process
    loses the contents of its buffers."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # a user's code has closed it
            stream.flush()
    library = ctypes.CDLL(None)
    library.fflush(None)
    with suppress(ValueError):  # no such symbol outside Linux
        library.setvbuf(ctypes.c_void_p.in_dll(library, "stdout"), None, _LINE_BUFFERED, ctypes.c_size_t(0))


def _make_private(directory: Path) -> None:
    """Makes a directory, and the one above it, for this user alone.

    Raises:
        OSError: it cannot be made, or somebody else has already made one.
    """
    directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.mkdir(mode=0o700, exist_ok=True)
    for path in (directory.parent, directory):
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise PermissionError(f"{path} is no directory of this user")
