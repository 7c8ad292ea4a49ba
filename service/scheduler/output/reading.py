"""Reading the files with the output of ranks on this machine, and removing the parts that have been kept.

The reader says up to which position each file is kept. Everything before it is freed, and a file that nobody writes to
any more is removed once all of it is kept. So nothing is lost if a reader dies. If there is too much output since the
last reading, only its beginning and end are read; the rest is freed at once, so that it does not fill the disk.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from service.scheduler.output.files import SourceName

FILE_BYTES = 32 * 2**10
"""The most bytes of a file that one reading takes."""
LOOK_BYTES = 512 * 2**10
"""The most bytes of all files that one reading takes."""
MAX_LINE_BYTES = 4 * 2**10
"""An unfinished line that is longer is read anyway."""
SETTLING_SECONDS = 2.0
"""Seconds without a write after which an unfinished line is read anyway."""
FREED_AT_ONCE = 2**20
"""Bytes of a file that were read and are freed together: 1 MiB, by judgement, so that it happens seldom."""
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
"""`FALLOC_FL_...` of Linux."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Some output of a rank: whole lines, except the last line of a file and lines that are too long."""

    source: SourceName
    content: bytes
    ends_at: int
    """The position in its file after it."""
    omitted_bytes: int = 0
    """Bytes that were skipped before it."""


def read_output(directory: Path, kept: Mapping[str, int]) -> list[Piece]:
    """Reads the contents of a directory's files beyond `kept`, in the order in which the files were begun.

    Args:
        kept: {file name: the position up to which it is kept}; other files are read from their beginnings.
    """
    sources = _sources(directory)
    newest = {(source.pid, source.stream): source for source in sources}
    pieces = list[Piece]()
    allowance = max(MAX_LINE_BYTES * 2, min(FILE_BYTES, LOOK_BYTES // max(1, len(sources))))
    for source in sources:
        path = directory / str(source)
        is_written = newest[source.pid, source.stream] == source and psutil.pid_exists(source.pid)
        with suppress(FileNotFoundError):
            pieces += _read(path, source, kept.get(str(source), 0), allowance=allowance, is_written=is_written)
    return pieces


def _sources(directory: Path) -> list[SourceName]:
    try:
        names = [SourceName.read(entry.name) for entry in os.scandir(directory)]
    except FileNotFoundError:
        return []
    return sorted((name for name in names if name is not None), key=lambda name: (name.begun_ns, name))


def _read(path: Path, source: SourceName, kept: int, *, allowance: int, is_written: bool) -> Iterator[Piece]:
    with path.open("rb") as file:
        state = os.fstat(file.fileno())
        size, is_settled = state.st_size, time.time() - state.st_mtime > SETTLING_SECONDS
        begin = kept if kept <= size else 0  # it was truncated, because its middle could not be freed
        if begin == size:
            if not is_written and is_settled:
                path.unlink(missing_ok=True)
            elif kept >= FREED_AT_ONCE and is_settled:
                _free(path, 0, kept)
            return
        is_whole = is_settled or not is_written
        if size - begin <= allowance:
            content = _whole_lines(_bytes_at(file.fileno(), begin, size - begin), is_whole)
            if content:
                yield Piece(source, content, begin + len(content))
            return
        half = allowance // 2
        first = _whole_lines(_bytes_at(file.fileno(), begin, half), is_last=False) or _bytes_at(
            file.fileno(), begin, half
        )
        yield Piece(source, first, begin + len(first))
        start = size - half
        last = _bytes_at(file.fileno(), start, half)
        line_end = last.find(b"\n") + 1
        start, last = start + line_end, _whole_lines(last[line_end:], is_whole)
        if last:
            yield Piece(source, last, start + len(last), omitted_bytes=start - begin - len(first))
        if size - begin > FREED_AT_ONCE:
            _free(path, begin + len(first), start)


def _bytes_at(file: int, begin: int, length: int) -> bytes:
    return os.pread(file, length, begin)


def _whole_lines(content: bytes, is_last: bool) -> bytes:
    """The content up to the end of its last complete line; all of it if the unfinished line is too long, or will not
    continue."""
    if is_last:
        return content
    end = max(content.rfind(b"\n"), content.rfind(b"\r")) + 1
    return content if len(content) - end > MAX_LINE_BYTES else content[:end]


def _free(path: Path, begin: int, end: int) -> None:
    """Frees a part of a file on the disk. If the file system cannot do that, a large file is truncated."""
    with path.open("r+b") as file:
        library = ctypes.CDLL(None, use_errno=True)
        call = getattr(library, "fallocate64", None) or getattr(library, "fallocate", None)
        offset, length = ctypes.c_int64(begin), ctypes.c_int64(end - begin)
        if call is not None and call(file.fileno(), _PUNCH_HOLE | _KEEP_SIZE, offset, length) == 0:
            return
        if os.fstat(file.fileno()).st_size > 64 * FREED_AT_ONCE:
            file.truncate(0)  # the ranks append: their next output is at the beginning


def kept_names(pieces: Sequence[Piece]) -> dict[str, int]:
    """{file name: the position after the last of these pieces}."""
    return {str(piece.source): piece.ends_at for piece in pieces}
