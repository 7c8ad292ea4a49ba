"""Archives of code: a gzipped tar of regular files, named by a hash of what is in it.

The hash goes over names, modes and contents, in the order of the names, so that the same files have the same hash
whoever packs them, and when. Whoever reads an archive checks all of it and writes it anew: nothing that a sender put
between the files is kept.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import sys
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

MAX_SENT_BYTES = 10_000_000
"""Most bytes of an archive, compressed."""
MAX_BYTES = 50_000_000
"""Most bytes of all files together."""
MAX_FILES = 2000
"""Most files, by judgement: far more than the code of one workload."""
MAX_DEPTH = 16
"""Parts of a name."""
MAX_NAME_BYTES = 255
"""Most bytes of a name with its directories."""
MEDIA_TYPE = "application/gzip"

OWN_NAMES = frozenset({"search_spaces", "service", "shampoo", "trainers"})
"""The names of packages that the service itself imports, which code that is sent must not take."""

_OVERHEAD_BYTES = MAX_FILES * 4096
"""Most bytes of headers between the files."""
_IMPORTABLE = (".py", ".so")
_EXECUTABLE, _ORDINARY = 0o755, 0o644


class UnusableCode(ValueError):
    """Code that is not taken; the message says why, and names the file."""


@dataclass(frozen=True, slots=True)
class CodeFile:
    """One file."""

    content: bytes
    is_executable: bool = False


@dataclass(frozen=True, slots=True)
class CodeArchive:
    """Files, checked, as they are stored."""

    sha256: str
    content: bytes
    """The archive."""
    num_files: int
    num_bytes: int
    """Bytes of all files together, unpacked."""


def pack(files: Mapping[str, CodeFile]) -> CodeArchive:
    """The archive of files by their names.

    Raises:
        UnusableCode: there are none, or too many, or one has a name that is not taken.
    """
    names = sorted(files)
    _check_names(names)
    num_bytes = sum(len(files[name].content) for name in names)
    if num_bytes > MAX_BYTES:
        raise UnusableCode(f"the files have {num_bytes:,} bytes, more than the {MAX_BYTES:,} that are taken")
    digest, packed = hashlib.sha256(), io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", filename="", mtime=0, compresslevel=6) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name in names:
            file = files[name]
            for part in (name.encode(), b"x" if file.is_executable else b"-", file.content):
                digest.update(len(part).to_bytes(8, "big") + part)
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(file.content), _EXECUTABLE if file.is_executable else _ORDINARY
            tar.addfile(member, io.BytesIO(file.content))
    return CodeArchive(digest.hexdigest(), packed.getvalue(), len(names), num_bytes)


def read(archive: IO[bytes]) -> dict[str, CodeFile]:
    """The files of an archive by name, none of it trusted: bounded in bytes and number before they are read.

    Raises:
        UnusableCode: it is no such archive, or holds something else than files with plain names.
    """
    found: dict[str, CodeFile] = {}
    num_bytes = 0
    try:
        with gzip.GzipFile(fileobj=archive, mode="rb") as unpacked:
            bounded = _Bounded(unpacked)
            tar = tarfile.open(fileobj=cast("IO[bytes]", bounded), mode="r|")  # noqa: SIM115  # it holds nothing open
            for member in tar:
                if member.isdir():
                    continue
                if not member.isreg() or member.issparse() or member.size < 0:
                    raise UnusableCode(
                        f"{member.name!a} is no regular file: links, devices and sparse files are not taken"
                    )
                num_bytes += member.size
                if len(found) >= MAX_FILES or num_bytes > MAX_BYTES:
                    raise UnusableCode(f"it holds more than {MAX_FILES} files or {_megabytes(MAX_BYTES)}")
                bounded.allow(member.size)
                name = member.name.removeprefix("./")
                if name in found:
                    raise UnusableCode(f"{name!a} is in it twice")
                content = tar.extractfile(member)
                assert content is not None, "a regular file has content"
                found[name] = CodeFile(content.read(), is_executable=bool(member.mode & 0o100))
    except UnusableCode:
        raise
    except (tarfile.TarError, OSError, EOFError, zlib.error, ValueError, OverflowError) as error:
        # `tarfile` lets the ValueError of a number through that is none, as in a sparse file's map.
        raise UnusableCode(f"it is no gzipped tar archive: {error}") from error
    return found


def unpack(archive: bytes, directory: Path) -> None:
    """Lays the files of a stored archive below `directory`, a new one that is made.

    Raises:
        UnusableCode: it is none.
        OSError: there is no room, or the directory is there already, or this machine takes two names for the same file.
    """
    files = read(io.BytesIO(archive))
    _check_names(sorted(files))
    directory.mkdir(mode=0o700)
    for name, file in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as new:  # where `A.py` is `a.py`, the second of them would replace the first
            new.write(file.content)
            os.fchmod(new.fileno(), _EXECUTABLE if file.is_executable else _ORDINARY)


def _check_names(names: Iterable[str]) -> None:
    """Raises: UnusableCode."""
    seen: set[str] = set()
    for name in names:
        if problem := _problem_of(name):
            raise UnusableCode(f"the file name {name[:MAX_NAME_BYTES]!a} {problem}")
        seen.add(name)
    if not seen:
        raise UnusableCode("there are no files in it")
    if len(seen) > MAX_FILES:
        raise UnusableCode(f"{len(seen)} files are more than the {MAX_FILES} that are taken")
    for name in seen:
        for directory in _directories_of(name):
            if directory in seen:
                raise UnusableCode(f"{directory!a} is both a file and a directory")


def _problem_of(name: str) -> str | None:
    try:
        length = len(name.encode())
    except UnicodeEncodeError:
        return "is not valid Unicode"
    parts = name.split("/")
    if not name.isprintable() or "\\" in name:
        return "has characters that file names here do not"
    if length > MAX_NAME_BYTES:
        return f"is longer than {MAX_NAME_BYTES} bytes"
    if any(part in ("", ".", "..") for part in parts):
        return "leads out of its directory"
    if len(parts) > MAX_DEPTH:
        return f"is deeper than {MAX_DEPTH} levels"
    if parts[-1].endswith(_IMPORTABLE):  # data may be called as they like
        module = parts[0].partition(".")[0]
        if module in OWN_NAMES:
            return f"is below {module}, a name that the service itself imports"
        if module in sys.stdlib_module_names:
            return f"is of {module}, a module of Python's standard library"
    return None


def _directories_of(name: str) -> Iterator[str]:
    while "/" in name:
        name = name.rpartition("/")[0]
        yield name


class _Bounded:
    """A stream that gives no more than the files that were found so far have, and what may stand between them: a few
    kilobytes of gzip can say gigabytes, and headers alone cost a hundred times the time of as many bytes of a file."""

    def __init__(self, stream: gzip.GzipFile) -> None:
        self._stream = stream
        self._left = _OVERHEAD_BYTES

    def allow(self, num_bytes: int) -> None:
        """Gives the content of one file more."""
        self._left += num_bytes

    def read(self, size: int) -> bytes:
        """Raises: UnusableCode."""
        content = self._stream.read(min(size, self._left + 1))
        self._left -= len(content)
        if self._left < 0:
            raise UnusableCode(
                f"it holds more than {_megabytes(_OVERHEAD_BYTES)} beside the content of files, such as headers "
                "and directories: pack the files alone, under short names"
            )
        return content


def _megabytes(num_bytes: int) -> str:
    """A size for people: `8.192 MB`."""
    return f"{num_bytes / 10**6:g} MB"
