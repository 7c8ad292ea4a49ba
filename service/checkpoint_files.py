"""The checkpoints of a trial, and trained weights, as files to be listed and copied, on a path or in a store. Imports
no torch.

What is in them is read by `trainers.checkpoints` alone; here counts what their manifests say of the files.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, cast

from pydantic import BaseModel, ValidationError

from trainers.storage import WEIGHTS_FILE, Place, StoreUri

MANIFEST = "manifest.json"
WEIGHTS_DIRECTORY = "weights"
"""Beside the directories of the jobs' checkpoints."""
LARGEST_MANIFEST_BYTES = 64 * 2**20
"""64 MiB, by judgement: it is read into memory whole, and a larger one is not ours."""
_CHECKPOINT = re.compile(r"step-(\d{8,})(?:-[0-9a-f]{16})?")
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class _Head(BaseModel):
    world_size: int
    files: dict[str, str]
    """SHA-256 by name."""


class _ManifestFile(BaseModel):
    manifest: _Head


@dataclass(frozen=True, slots=True)
class CheckpointFile:
    name: str
    num_bytes: int
    sha256: str | None
    """The digest in its manifest; None: it says nothing of it."""


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """One checkpoint, as it lies there."""

    name: str
    step: int
    written_at: datetime
    """The time at which the newest of its files was written."""
    world_size: int | None
    """Ranks that wrote it; None: its manifest is missing or damaged."""
    files: Sequence[CheckpointFile]

    @property
    def num_bytes(self) -> int:
        return sum(file.num_bytes for file in self.files)

    @property
    def is_whole(self) -> bool:
        """True if each rank's file is there beside a manifest that can be read. Checksums are not looked at."""
        return self.world_size is not None and sum(file.sha256 is not None for file in self.files) == self.world_size


@dataclass(slots=True)
class OpenFile:
    """A file of a checkpoint, open for reading; to be closed."""

    content: BinaryIO
    num_bytes: int
    version: str = ""
    """Tells it from another file of its name; of a store empty, where no checkpoint has the name of another."""


@dataclass(frozen=True, slots=True)
class _Entry:
    num_bytes: int
    written_at: datetime


def _files_of(checkpoint: Path) -> dict[str, _Entry]:
    found = dict[str, _Entry]()
    with suppress(FileNotFoundError, NotADirectoryError):  # it is removed meanwhile
        for path in checkpoint.iterdir():
            status = path.lstat()
            if stat.S_ISREG(status.st_mode):
                written_at = datetime.fromtimestamp(status.st_mtime, tz=UTC)
                found[f"{checkpoint.name}/{path.name}"] = _Entry(status.st_size, written_at)
    return found


class TrialCheckpoints:
    """The checkpoints at one place, a trial's. A store that fails raises `StoreFailed`; a disk, `OSError`."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def newest_first(self) -> list[StoredCheckpoint]:
        """The checkpoints that are there; one being written to a path is not, one in a store is not whole."""
        found = dict[str, dict[str, _Entry]]()
        for path, entry in self._entries().items():
            checkpoint, _, name = path.partition("/")
            if _CHECKPOINT.fullmatch(checkpoint) and _FILE.fullmatch(name):
                found.setdefault(checkpoint, {})[name] = entry
        checkpoints = [self._read(name, entries) for name, entries in found.items()]
        return sorted(checkpoints, key=lambda checkpoint: (checkpoint.step, checkpoint.name), reverse=True)

    def open(self, checkpoint: str, name: str) -> OpenFile:
        """A file. It can be read to its end, also from a path where it is removed meanwhile.

        Raises:
            FileNotFoundError: there is none, or these are no names of a checkpoint and a file of one.
        """
        if not _CHECKPOINT.fullmatch(checkpoint) or not _FILE.fullmatch(name):
            raise FileNotFoundError(f"{checkpoint}/{name}")
        return _open(self._place, checkpoint, name)

    def _entries(self) -> Mapping[str, _Entry]:
        """{path: what is known of the file}, of all files."""
        if isinstance(self._place, StoreUri):
            from trainers.storage.object_store import ObjectStore  # imports pyarrow

            listed = ObjectStore(self._place, outage_seconds=0.0).listed()
            return {path: _Entry(file.num_bytes, file.written_at) for path, file in listed.items()}
        found = dict[str, _Entry]()
        with suppress(FileNotFoundError):  # the trial ended, and all is removed meanwhile
            for directory in self._place.glob("step-*"):
                if not directory.is_symlink():
                    found |= _files_of(directory)
        return found

    def _read(self, name: str, entries: Mapping[str, _Entry]) -> StoredCheckpoint:
        head = self._head(name) if MANIFEST in entries else None
        checksums = head.files if head is not None else {}
        files = [CheckpointFile(file, entry.num_bytes, checksums.get(file)) for file, entry in sorted(entries.items())]
        written_at = max(entry.written_at for entry in entries.values())
        match = _CHECKPOINT.fullmatch(name)
        assert match is not None
        return StoredCheckpoint(name, int(match[1]), written_at, None if head is None else head.world_size, files)

    def _head(self, checkpoint: str) -> _Head | None:
        try:
            opened = self.open(checkpoint, MANIFEST)
        except FileNotFoundError:
            return None
        with opened.content as file:
            if opened.num_bytes > LARGEST_MANIFEST_BYTES:
                return None
            try:
                return _ManifestFile.model_validate_json(file.read(opened.num_bytes)).manifest
            except ValidationError:
                return None


def weights_of(place: Place, job_id: str) -> Place:
    """The place of a job's trained weights; those of each trial have a directory in it, named by its number."""
    return place / WEIGHTS_DIRECTORY / job_id


def open_weights(place: Place, job_id: str, number: int) -> OpenFile:
    """The trained weights of a trial, which can be read to their end also where they are removed meanwhile.

    Raises:
        FileNotFoundError: there are none.
        StoreFailed, OSError: they are out of reach.
    """
    return _open(weights_of(place, job_id), str(number), WEIGHTS_FILE)


def _open(place: Place, folder: str, name: str) -> OpenFile:
    if isinstance(place, StoreUri):
        from trainers.storage.object_store import ObjectStore  # imports pyarrow

        content = ObjectStore(place, outage_seconds=0.0).open(f"{folder}/{name}")
        return OpenFile(cast("BinaryIO", content), content.size())
    directory = place / folder
    try:
        is_link = directory.is_symlink()
        file = os.open(directory / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:  # a link
            raise FileNotFoundError(f"{folder}/{name}") from None
        raise
    status = os.fstat(file)
    if is_link or not stat.S_ISREG(status.st_mode):
        os.close(file)
        raise FileNotFoundError(f"{folder}/{name}")
    return OpenFile(os.fdopen(file, "rb"), status.st_size, f"{status.st_mtime_ns:x}")
