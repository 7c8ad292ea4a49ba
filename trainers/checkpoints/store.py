"""A trial's checkpoints in a store, where nothing can be renamed: one is complete when its manifest is there.

Each has a directory of its own, `step-00000040-TOKEN`. The ranks write their files, and when all are there rank 0
writes `manifest.json`: what a crash leaves has none, and goes when the next checkpoint is complete or its trial ends.
"""

from __future__ import annotations

import logging
import os
import re
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from io import BufferedReader
from typing import IO

from trainers.checkpoints.trial_files import MANIFEST, CheckpointFiles, Chunks, chunks_of
from trainers.storage import StoreFailed, StoreUri
from trainers.storage.object_store import ObjectStore

_NAME = re.compile(r"step-(\d{8,})-[0-9a-f]{16}")

logger = logging.getLogger(__name__)


class Downloads:
    """One complete checkpoint; files are fetched once, into local ones without a name that vanish with their user."""

    def __init__(self, store: ObjectStore, checkpoint: str) -> None:
        self._store = store
        self._checkpoint = checkpoint
        self._local: dict[str, IO[bytes]] = {}

    def read_manifest(self) -> bytes:
        return self._store.read(f"{self._checkpoint}/{MANIFEST}")

    def open(self, name: str) -> BufferedReader:
        if name not in self._local:
            file = tempfile.TemporaryFile()  # noqa: SIM115  # closed by `close`
            try:
                self._store.download(f"{self._checkpoint}/{name}", file)
                file.flush()
            except BaseException:
                file.close()
                raise
            self._local[name] = file
        self._local[name].seek(0)
        return os.fdopen(os.dup(self._local[name].fileno()), "rb")

    def close(self) -> None:
        for file in self._local.values():
            file.close()


class StoreFiles:
    """`TrialFiles` in a store."""

    def __init__(self, uri: StoreUri) -> None:
        self._store = ObjectStore(uri)
        # What is to be deleted can wait; the other ranks, for whom the one that deletes is late, cannot.
        self._impatient = ObjectStore(uri, outage_seconds=0.0)

    def newest_first(self) -> list[str]:
        return _complete(self._store.files())

    def name_of(self, step: int) -> str:
        for name in self.newest_first():
            if _step(name) == step:
                return name
        raise FileNotFoundError(f"there is no checkpoint of step {step} in {self._store.uri}")

    @contextmanager
    def reading(self, checkpoint: str) -> Iterator[Downloads]:
        downloads = Downloads(self._store, checkpoint)
        try:
            yield downloads
        finally:
            downloads.close()

    def start(self, step: int, token: int) -> None:
        """Does nothing: training would wait for the store."""

    def write(self, step: int, token: int, name: str, chunks: Chunks) -> str:
        return self._store.write(f"{_name(step, token)}/{name}", chunks)

    def adopt(self, step: int, token: int, name: str, files: CheckpointFiles) -> None:
        self.write(step, token, name, partial(chunks_of, files, name))

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
        own, files = _name(step, token), self._store.files()
        missing = [name for name in others if f"{own}/{name}" not in files]
        if missing:  # a later process of this trial took this one for dead
            raise FileNotFoundError(f"{', '.join(missing)} of {own} in {self._store.uri} was deleted meanwhile")
        self._store.write(f"{own}/{MANIFEST}", lambda: [manifest])
        complete = [name for name in _complete(files) if name != own]
        older = [name for name in complete if name not in damaged and _step(name) < step]
        kept = {name for name in complete if name not in damaged and _step(name) != step}
        kept -= set(older[num_kept - 1 :])
        self._delete(_checkpoints(files) - kept - {own})

    def discard(self, step: int, token: int) -> None:
        self._delete({_name(step, token)})

    def _delete(self, checkpoints: Collection[str]) -> None:
        """Deletes checkpoints; those that are still there go when the next is complete."""
        try:
            for checkpoint in sorted(checkpoints):
                self._impatient.delete(checkpoint)
        except StoreFailed as error:
            logger.warning("old checkpoints stay for now: %s", error)


def _name(step: int, token: int) -> str:
    return f"step-{step:08d}-{token:016x}"


def _step(name: str) -> int:
    return int(name.split("-")[1])


def _checkpoints(files: Collection[str]) -> set[str]:
    """Complete or not."""
    return {name for name in (path.partition("/")[0] for path in files) if _NAME.fullmatch(name)}


def _complete(files: Collection[str]) -> list[str]:
    """Newest first; two of the same step come in an order that is the same for all."""
    complete = (name for name in _checkpoints(files) if f"{name}/{MANIFEST}" in files)
    return sorted(complete, key=lambda name: (_step(name), name), reverse=True)
