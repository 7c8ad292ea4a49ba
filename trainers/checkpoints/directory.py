"""The directory with a trial's checkpoints: `step-00000040` is complete, what is being written has another name.

A checkpoint is written under that other name, flushed to disk and then renamed, so a crash at any moment leaves the
earlier ones as they are.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from io import BufferedReader
from pathlib import Path

from trainers.checkpoints.tensor_file import write_file
from trainers.checkpoints.trial_files import MANIFEST, CheckpointFiles, Chunks, chunks_of
from trainers.storage.full_disks import when_there_is_room

_COMPLETE = re.compile(r"step-(\d{8,})")
_PARTIAL_PREFIX = ".partial-"


@dataclass(frozen=True, slots=True)
class CheckpointFolder:
    """One complete checkpoint."""

    path: Path

    def read_manifest(self) -> bytes:
        return (self.path / MANIFEST).read_bytes()

    def open(self, name: str) -> BufferedReader:
        return (self.path / name).open("rb")


class DirectoryFiles:
    """`TrialFiles` in a directory that all ranks see."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def newest_first(self) -> list[str]:
        return [path.name for path in self._complete()]

    def name_of(self, step: int) -> str:
        path = self._directory / _name(step)
        if not path.is_dir():
            raise FileNotFoundError(f"there is no checkpoint {path}")
        return path.name

    @contextmanager
    def reading(self, checkpoint: str) -> Iterator[CheckpointFolder]:
        yield CheckpointFolder(self._directory / checkpoint)

    def start(self, step: int, token: int) -> None:
        when_there_is_room(lambda: self._directory.mkdir(parents=True, exist_ok=True))
        for leftover in self._directory.glob(f"{_PARTIAL_PREFIX}*"):
            shutil.rmtree(leftover)
        when_there_is_room(self._partial(step, token).mkdir)

    def write(self, step: int, token: int, name: str, chunks: Chunks) -> str:
        return write_file(self._partial(step, token) / name, chunks)

    def adopt(self, step: int, token: int, name: str, files: CheckpointFiles) -> None:
        target = self._partial(step, token) / name
        if isinstance(files, CheckpointFolder):
            with suppress(OSError):  # another disk, or one that cannot link
                os.link(files.path / name, target)
                return
        write_file(target, partial(chunks_of, files, name))

    def finish(
        self,
        step: int,
        token: int,
        manifest: bytes,
        *,
        others: Collection[str],
        num_kept: int,
        damaged: Collection[str],
    ) -> None:
        written, final = self._partial(step, token), self._directory / _name(step)
        write_file(written / MANIFEST, lambda: [manifest])
        _flush(written)
        replaced = self._directory / f"{_PARTIAL_PREFIX}replaced-{written.name.removeprefix(_PARTIAL_PREFIX)}"
        if final.exists():  # a damaged one, after a resume from the one before it
            final.rename(replaced)
        written.rename(final)
        _flush(self._directory)
        complete = [path for path in self._complete() if path != final]
        for path in complete:
            if path.name in damaged:
                shutil.rmtree(path)
        older = [path for path in complete if path.name not in damaged and _step(path) < step]
        for path in older[num_kept - 1 :]:
            shutil.rmtree(path)
        shutil.rmtree(replaced, ignore_errors=True)

    def discard(self, step: int, token: int) -> None:
        shutil.rmtree(self._partial(step, token), ignore_errors=True)

    def _partial(self, step: int, token: int) -> Path:
        return self._directory / f"{_PARTIAL_PREFIX}{_name(step)}-{token:016x}"

    def _complete(self) -> list[Path]:
        """Newest first."""
        if not self._directory.is_dir():
            return []
        found = (path for path in self._directory.iterdir() if _COMPLETE.fullmatch(path.name))
        return sorted(found, key=_step, reverse=True)


def _name(step: int) -> str:
    return f"step-{step:08d}"


def _step(path: Path) -> int:
    return int(path.name.removeprefix("step-"))


def _flush(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
