"""The seam of storage: what checkpoints ask of the place where their files lie, a directory or a store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager
from io import BufferedReader
from typing import Protocol, TypeAlias

MANIFEST = "manifest.json"
_CHUNK_BYTES = 1 << 24
"""Copied at once: 16 MiB, to bound memory."""

Chunks: TypeAlias = Callable[[], Iterable[bytes | memoryview]]
"""Gives a file's content, each time from its beginning."""


class CheckpointFiles(Protocol):
    """The files of one checkpoint, to be read. A file that is not there: FileNotFoundError."""

    def read_manifest(self) -> bytes: ...

    def open(self, name: str) -> BufferedReader:
        """The file, open at its beginning."""


class TrialFiles(Protocol):
    """The checkpoints of one trial.

    One being written is known by its step and a token, which tells it from one that a process still writes that is
    thought dead. It is no checkpoint before `finish`. Everything but `write` is called by one rank.

    What a store refuses raises StoreFailed; what a disk refuses, OSError. Both are asked again for a minute where that
    may help: a store that is out of reach, a disk that is full.
    """

    def newest_first(self) -> list[str]:
        """The names of the complete checkpoints; any rank may ask."""

    def name_of(self, step: int) -> str:
        """The complete checkpoint of a step. Raises: FileNotFoundError."""

    def reading(self, checkpoint: str) -> AbstractContextManager[CheckpointFiles]:
        """The files of a complete checkpoint; any rank may read."""

    def start(self, step: int, token: int) -> None:
        """Makes room for a checkpoint, and removes what crashed processes left if it takes no time to speak of."""

    def write(self, step: int, token: int, name: str, chunks: Chunks) -> str:
        """Writes a file, safely when it returns; gives its SHA-256. Every rank writes its own."""

    def adopt(self, step: int, token: int, name: str, files: CheckpointFiles) -> None:
        """Adds a file of another checkpoint to this one, as a link if the disk can do that. Nobody writes to a file of
        a checkpoint again."""

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
        """Completes a checkpoint of which all `others` but the manifest are written; deletes those that are too old.

        `damaged` are the names of those that could not be read: they do not count among the `num_kept` that
        stay. If it fails, the checkpoints that were there are there still.
        """

    def discard(self, step: int, token: int) -> None:
        """Removes, as far as possible, what was written of a checkpoint that will not be completed."""


def chunks_of(files: CheckpointFiles, name: str) -> Iterator[bytes]:
    """The content of a file."""
    with files.open(name) as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk
