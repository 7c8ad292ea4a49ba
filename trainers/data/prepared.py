"""Data sets prepared once: files that ranks, trials and processes share, kept in a directory of the user's.

An entry is a directory of plain files beside a manifest. It appears at once, by a rename, so that none is ever seen
half-written; whoever comes while it is in the making waits for the one that makes it. Entries are never removed:
deleting the whole directory, at any time, costs no more than preparing them again.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from logging import getLogger
from pathlib import Path
from typing import Any

import platformdirs

logger = getLogger(__name__)

DIRECTORY_VARIABLE = "SHAMPOO_TUNER_CACHE"
"""Environment variable that names the directory."""
MANIFEST = "manifest.json"
FORMAT = 1
"""Raised when the files of any entry change their meaning: older entries are prepared anew."""
NUM_SAMPLED_PAGES = 64
PAGE_BYTES = 4096
"""Both are of a large file: so many pages of so many bytes, spread over it, stand for its content."""


def cache_directory(option: object) -> Path:
    """The directory of prepared data: the workload's option, or `SHAMPOO_TUNER_CACHE`, or the user's cache directory.

    Raises:
        ValueError: the option is no path; it is called `cache_directory`. Or the directory would lie in a home that
            is not known.
    """
    if option is not None and (not isinstance(option, str) or not option):
        raise ValueError(f"cache_directory must be a path or null, got {option!r}")
    chosen = option or os.environ.get(DIRECTORY_VARIABLE)
    try:
        return Path(chosen).expanduser() if chosen else Path(platformdirs.user_cache_dir("shampoo-tuner"))
    except RuntimeError as error:
        raise ValueError(
            f"the home where prepared data would be kept is not known; the option cache_directory, or "
            f"{DIRECTORY_VARIABLE}, names another place"
        ) from error


def prepared(
    directory: Path, kind: str, key: Mapping[str, Any], prepare: Callable[[Path], Mapping[str, Any]]
) -> tuple[Path, dict[str, Any]]:
    """The entry of that kind and key (JSON-able values that determine its content), prepared now if it is not there.

    `prepare` writes files into the empty directory it is given, and returns what is to be known of them (JSON-able); it
    may remove files of its own there. It runs in one process at a time for each entry, on this machine and, where the
    file system's locks reach so far, on others; after an error or a kill nothing of it remains that is ever used.

    An entry whose files are missing, cut short or altered is prepared again. What is compared is the size of each file
    and a digest of 64 pages spread over it: reading all of a large data set at the start of each trial takes too long.

    Returns:
        The directory with the files, and what `prepare` returned.

    Raises:
        ValueError: nothing can be kept in the directory; the message says how another one is named.
    """
    text = json.dumps({"format": FORMAT, **key}, sort_keys=True)
    name = f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:32]}"
    entry = directory / name
    if (facts := _facts(entry)) is not None:
        return entry, facts
    with exclusive(directory / f"{name}.lock"):
        if (facts := _facts(entry)) is not None:  # another was faster
            return entry, facts
        for leftover in directory.glob(f".{name}.*"):  # of one that was killed, or else it would hold the lock
            shutil.rmtree(leftover, ignore_errors=True)
        draft = directory / f".{name}.{uuid.uuid4().hex}"
        draft.mkdir()
        try:
            facts = dict(prepare(draft))
            _write_manifest(draft, facts)
            if entry.exists():
                logger.warning("%s is damaged, and was prepared again", entry)
                # Out of the way by a rename, which readers that have mapped its files do not notice.
                entry.rename(draft.with_name(f"{draft.name}.damaged"))
                shutil.rmtree(draft.with_name(f"{draft.name}.damaged"))
            draft.rename(entry)
            _synchronise(directory)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return entry, facts


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Holds the lock that is the file at `path`, which is made with its directory; waits until it is free.

    The system frees it when the process ends, in whatever way.

    Raises:
        ValueError: the file, or its directory, cannot be made.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise ValueError(
            f"no prepared data can be kept there: {error}; the option cache_directory, or {DIRECTORY_VARIABLE}, names "
            "another place"
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def write_atomically(path: Path, content: bytes) -> None:
    """Writes a small file that is never seen half-written."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as draft:
        draft.write(content)
    Path(draft.name).rename(path)


def _facts(entry: Path) -> dict[str, Any] | None:
    """The content of the manifest, if the files are as it says."""
    try:
        manifest = json.loads((entry / MANIFEST).read_bytes())
        is_whole = all(_seal(entry / name) == seal for name, seal in manifest["files"].items())
        return dict(manifest["facts"]) if is_whole else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _write_manifest(draft: Path, facts: Mapping[str, Any]) -> None:
    files = {file.name: _seal(file) for file in sorted(draft.iterdir())}
    for name in files:
        _synchronise(draft / name)
    (draft / MANIFEST).write_text(json.dumps({"files": files, "facts": facts}))
    _synchronise(draft / MANIFEST)
    _synchronise(draft)


def _seal(file: Path) -> list[int | str]:
    """Size in bytes, and a digest of pages spread over the file, the last bytes among them."""
    num_bytes = file.stat().st_size
    digest = hashlib.sha256()
    last = max(num_bytes - PAGE_BYTES, 0)
    with file.open("rb") as stream:
        for index in range(NUM_SAMPLED_PAGES):
            stream.seek(last * index // (NUM_SAMPLED_PAGES - 1))
            digest.update(stream.read(PAGE_BYTES))
    return [num_bytes, digest.hexdigest()]


def _synchronise(path: Path) -> None:
    """Flushes a file's or directory's content to the disk, so that a crash of the machine leaves nothing
    half-written."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
