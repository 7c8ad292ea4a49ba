"""Standard output of the command line: closed, on a full disk, or in an encoding that lacks what is to be written; and
standard error where that is closed.
"""

from __future__ import annotations

import os
import sys
from codecs import lookup
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import FileIO, TextIOWrapper

STDOUT = 1
"""The number of standard output among a process's files."""
STDERR = 2
"""The number of standard error."""


@contextmanager
def writing_what_it_takes() -> Iterator[None]:
    """Prepares the standard streams for names that anybody gave, and ends without a word of what standard output did
    not take: whoever wrote it has had the error, and Python would try it again at the end of the process, and complain.
    """
    if sys.stdout is None:
        sys.stdout = _closed_output()
    if sys.stderr is None:
        sys.stderr = _no_errors()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            _let_write_all(stream)
    try:
        yield
    finally:
        try:
            sys.stdout.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), STDOUT)


def write_bytes(pieces: Iterable[bytes]) -> None:
    """Writes a file's content to standard output, to the last byte. Raises: OSError."""
    for piece in pieces:
        sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


def _closed_output() -> TextIOWrapper:
    """Standard output where the caller has closed it: whoever writes has an error, instead of what would be lost. Its
    number is taken, so that no file which is opened later is written to in its place."""
    descriptor = os.open(os.devnull, os.O_RDONLY)
    if descriptor != STDOUT:
        os.dup2(descriptor, STDOUT)
        os.close(descriptor)
    return TextIOWrapper(FileIO(STDOUT, "w", closefd=False), encoding="utf-8", write_through=True)


def _no_errors() -> TextIOWrapper:
    """Standard error where the caller has closed it: what is said there, the log too, is lost."""
    descriptor = os.open(os.devnull, os.O_WRONLY)
    if descriptor != STDERR:
        os.dup2(descriptor, STDERR)
        os.close(descriptor)
    return TextIOWrapper(FileIO(STDERR, "w", closefd=False), encoding="utf-8", write_through=True)


def _let_write_all(stream: TextIOWrapper) -> None:
    """Prepares a stream for names that anybody gave: what has no place in its encoding is an escape."""
    encoding = lookup(stream.encoding).name
    if encoding == "ascii":  # as without a locale: click writes UTF-8 then
        stream.reconfigure(encoding="utf-8")
    elif encoding != "utf-8":
        stream.reconfigure(errors="backslashreplace")
