"""The files that a path stands for, and a digest of what is in them."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainers.data.prepared import exclusive, write_atomically

UNSETTLED_SECONDS = 2.0
"""A file that changed so recently might change again without its time stamp's showing it."""
READ_BYTES = 2**18
"""Bytes that are read at once in the search for a line's end."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of a data set."""

    path: Path
    name: str
    """Its path within the data set, with slashes; the file's own name where the data set is one file."""
    num_bytes: int


def data_files(
    option: str, path: str, *, suffixes: Sequence[str] | None = None, pattern: str | None = None
) -> list[DataFile]:
    """The file at `path`, or the files in that directory and below, in the natural order of their names (day_2 before
    day_10). Hidden ones and those that begin with an underscore (as Spark's `_SUCCESS`) are left out.

    Args:
        option: what to call the path in an error.
        suffixes: endings of the names (in lower case) of the files that are taken from a directory; None: any.
        pattern: a glob that finds the files of a directory, whatever their endings; None: all that have one of them.

    Raises:
        ValueError: there is nothing at the path, or no such file in it.
    """
    root = Path(path).expanduser()
    if root.is_file():
        return [DataFile(root, root.name, root.stat().st_size)]
    if not root.is_dir():
        raise ValueError(f"{option} must be a file or a directory, got {path!r}, where there is neither")
    if pattern is not None and ".." in Path(pattern).parts:
        raise ValueError(f"{pattern!r} is not a pattern of files in {option} {path!r}: it leads out of there")
    try:
        candidates = root.glob(pattern or "**/*")
        found = [
            file
            for file in candidates
            if not any(part.startswith((".", "_")) for part in file.relative_to(root).parts)
            and (pattern is not None or suffixes is None or file.name.lower().endswith(tuple(suffixes)))
            and file.is_file()
        ]
    except (NotImplementedError, ValueError) as error:
        raise ValueError(f"{pattern!r} is not a pattern of files in {option} {path!r}: {error}") from error
    if not found:
        what = f"that {pattern!r} finds" if pattern else f"named *{', *'.join(suffixes)}" if suffixes else "at all"
        raise ValueError(f"{option} {path!r} is a directory without a file {what}")
    files = [DataFile(file, file.relative_to(root).as_posix(), file.stat().st_size) for file in found]
    return sorted(files, key=lambda file: _natural_order(file.name))


def stretches(path: Path, start: int, stop: int, *, num_bytes: int) -> Iterator[tuple[int, int]]:
    """The bytes of a text file from start to stop in stretches that begin with a line, of `num_bytes` and its rest."""
    while start < stop:
        end = min(line_end(path, start + num_bytes), stop) if start + num_bytes < stop else stop
        yield start, end
        start = end


def line_end(path: Path, position: int) -> int:
    """The first place at or behind the position where a line begins, or the end of the file."""
    with path.open("rb") as stream:
        stream.seek(max(position - 1, 0))
        while block := stream.read(READ_BYTES):
            index = block.find(b"\n")
            if index >= 0:
                return stream.tell() - len(block) + index + 1
        return stream.tell()


def content_digest(files: Sequence[DataFile], *, cache_directory: Path) -> str:
    """SHA-256 over names and contents, in hexadecimal.

    Reading all of a large data set takes long, so the result is kept in the cache directory under the files' paths,
    sizes, inodes and times of change, and read from there while those are the same.
    """
    stamps: list[list[str | int]] = []
    changed = 0
    for file in files:
        status = file.path.stat()
        changed = max(changed, status.st_mtime_ns, status.st_ctime_ns)
        stamps.append(
            [str(file.path.resolve()), file.name, status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns]
        )
    key = hashlib.sha256(json.dumps(stamps).encode()).hexdigest()
    known = cache_directory / "digests" / key
    with exclusive(cache_directory / "digests" / f"{key}.lock"):
        try:
            digest = known.read_text()
        except FileNotFoundError:
            digest = ""
        if re.fullmatch("[0-9a-f]{64}", digest):
            return digest
        started = time.time()
        digest = _read_all(files)
        if changed < (started - UNSETTLED_SECONDS) * 1e9:
            write_atomically(known, digest.encode())
        return digest


def _read_all(files: Sequence[DataFile]) -> str:
    digest = hashlib.sha256()
    for file in files:
        with file.path.open("rb") as stream:
            content = hashlib.file_digest(stream, "sha256").hexdigest()
        digest.update(json.dumps([file.name, content]).encode())
    return digest.hexdigest()


def _natural_order(name: str) -> list[tuple[int, str]]:
    """Numbers in a name count as numbers; the name itself decides between 1 and 01."""
    parts = re.split("([0-9]+)", name)
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts] + [(-1, name)]
