"""The directory with a trial's checkpoints: `step-00000040` is complete, what is being written has another name.

A checkpoint is written under that other name, flushed to disk and then renamed, so a crash at any moment leaves the
earlier ones as they are.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection
from pathlib import Path

MANIFEST = "manifest.json"

_COMPLETE = re.compile(r"step-(\d{8,})")
_PARTIAL_PREFIX = ".partial-"


def newest_first(directory: Path) -> list[Path]:
    """The complete checkpoints."""
    if not directory.is_dir():
        return []
    return sorted((path for path in directory.iterdir() if _COMPLETE.fullmatch(path.name)), key=_step, reverse=True)


def complete_path(directory: Path, *, step: int) -> Path:
    """Where the complete checkpoint of a step is, if there is one."""
    return directory / f"step-{step:08d}"


def _step(path: Path) -> int:
    return int(path.name.removeprefix("step-"))


def partial_path(directory: Path, *, step: int, token: int) -> Path:
    """Where a checkpoint is written; the token tells it from one that a process still writes which is thought dead."""
    return directory / f"{_PARTIAL_PREFIX}step-{step:08d}-{token:016x}"


def start(directory: Path, partial: Path) -> None:
    """Makes the directory to write into, and removes what crashed processes left. One rank calls it.

    Raises:
        OSError: the disk refused.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for leftover in directory.glob(f"{_PARTIAL_PREFIX}*"):
        shutil.rmtree(leftover)
    partial.mkdir()


def finish(
    directory: Path, partial: Path, manifest: bytes, *, step: int, num_kept: int, damaged: Collection[str]
) -> None:
    """Completes a checkpoint of which all files but the manifest are on disk; then deletes those that are too old.

    One rank calls it. `damaged` are the names of those that could not be read: they do not count among the kept.

    Raises:
        OSError: the disk refused; the checkpoints that were there are there still.
    """
    final = complete_path(directory, step=step)
    with (partial / MANIFEST).open("wb") as file:
        file.write(manifest)
        file.flush()
        os.fsync(file.fileno())
    _flush(partial)
    replaced = directory / f"{_PARTIAL_PREFIX}replaced-{partial.name.removeprefix(_PARTIAL_PREFIX)}"
    if final.exists():  # a damaged one, after a resume from the one before it
        final.rename(replaced)
    partial.rename(final)
    _flush(directory)
    others = [path for path in newest_first(directory) if path != final]
    for path in others:
        if path.name in damaged:
            shutil.rmtree(path)
    older = [path for path in others if path.name not in damaged and _step(path) < step]
    for path in older[num_kept - 1 :]:
        shutil.rmtree(path)
    shutil.rmtree(replaced, ignore_errors=True)


def discard(partial: Path) -> None:
    """Removes what was written of a checkpoint that will not be completed, as far as the disk lets it."""
    shutil.rmtree(partial, ignore_errors=True)


def _flush(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
