"""The readiness of this process: whether it finds what it needs of the disk, to be asked often."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from service.settings import Settings

LEAST_FREE_BYTES = 64 * 2**20
"""Least free bytes on its disk: with less, the embedded database may soon fail to write."""
LEAST_FREE_FILES = 1000
"""Least number of files for which there is room: with fewer, a checkpoint may soon fail as on a full disk, however many
bytes are free."""


@dataclass(frozen=True, slots=True)
class FileCheck:
    """A place on the disk that is needed, and what is wrong with it."""

    name: str
    why_not: str | None
    """None: nothing."""


def check_files(
    settings: Settings, *, data_are_here: bool, least_free_bytes: int = LEAST_FREE_BYTES
) -> list[FileCheck]:
    """The places that this process, and a worker on this machine, write to.

    Args:
        data_are_here: whether trials train on this machine.
    """
    found = []
    if settings.database_url is None:
        found.append(FileCheck("disk", _why_not(settings.data_dir, least_free_bytes)))
    if data_are_here and isinstance(settings.checkpoint_place, Path):
        found.append(FileCheck("checkpoints", _why_not(settings.checkpoint_place, least_free_bytes)))
    return found


def why_no_room(settings: Settings, *, data_are_here: bool) -> str | None:
    """Tells what `check_files` finds wrong with the places that are written to, each named; None: nothing."""
    checks = check_files(settings, data_are_here=data_are_here)
    return "; ".join(f"{check.name}: {check.why_not}" for check in checks if check.why_not) or None


def _why_not(directory: Path, least_free_bytes: int) -> str | None:
    """Whoever asks may be anyone: no paths are told."""
    there = next((path for path in (directory, *directory.parents) if path.exists()), directory)
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        return "the directory cannot be written to"
    free = shutil.disk_usage(there).free
    if free < least_free_bytes:
        return f"{free / 2**20:.0f} MiB are free, and {least_free_bytes / 2**20:.0f} needed"
    files = os.statvfs(there)
    if files.f_files and files.f_favail < LEAST_FREE_FILES:  # none in all: this file system counts no files
        return f"{files.f_favail} more files can be made, and {LEAST_FREE_FILES} needed"
    return None
