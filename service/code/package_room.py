"""The room that installed packages take: those that nobody uses go, and all together have no more than is allowed.

Each list of requirements has a directory, named by a hash, and beside it a lock that whoever uses it holds.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from pathlib import Path

KEPT_UNUSED_SECONDS = 7 * 24 * 3600.0
"""Packages that nobody has used for so long are removed when others are installed."""

NEW = "new-"
"""The prefix of directories whose installation has not ended."""


def is_at(lock: int, file: Path) -> bool:
    """True if an open file still stands at its path: whoever removes packages removes their lock."""
    try:
        return os.path.samestat(os.fstat(lock), file.stat())
    except FileNotFoundError:
        return False


def remove_unused(parent: Path) -> None:
    """Removes packages that nobody holds, and nobody has for a week, and what is left of installations that failed."""
    for lock_file in parent.glob("*.lock"):
        if not _is_used(lock_file.with_suffix("")):
            _remove_unless_held(lock_file)
    for unfinished in parent.glob(f"{NEW}*"):
        if not _is_used(unfinished):
            shutil.rmtree(unfinished, ignore_errors=True)


def room_left(parent: Path, max_bytes: int) -> int:
    """The bytes that packages below `parent` may still take, once those were removed, the longest unused first, that
    nobody holds and that are too much; negative if what is held is too much."""
    left = max_bytes - bytes_below(parent)
    locks = ((lock_file, _used_at(lock_file.with_suffix(""))) for lock_file in parent.glob("*.lock"))
    for lock_file, used_at in sorted(locks, key=lambda found: found[1]):
        if left > 0:
            break
        if used_at:
            left += _remove_unless_held(lock_file)
    return left


def bytes_below(directory: Path) -> int:
    """The bytes of all files below a directory, which others may be changing."""
    found = 0
    for at, _, names in os.walk(directory):
        for name in names:
            try:
                found += Path(at, name).lstat().st_size
            except FileNotFoundError:  # just removed
                continue
    return found


def _remove_unless_held(lock_file: Path) -> int:
    """Removes the packages of a lock, and the lock; how many bytes they had, 0 if somebody holds them."""
    directory = lock_file.with_suffix("")
    try:
        lock = os.open(lock_file, os.O_RDWR)
    except FileNotFoundError:  # another process has just removed it
        return 0
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not is_at(lock, lock_file):
            return 0
        num_bytes = bytes_below(directory)
        shutil.rmtree(directory, ignore_errors=True)
        lock_file.unlink()
        return num_bytes
    except BlockingIOError:
        return 0
    finally:
        os.close(lock)


def _is_used(directory: Path) -> bool:
    """True if somebody has held what lies there in the last week."""
    return _used_at(directory) > time.time() - KEPT_UNUSED_SECONDS


def _used_at(directory: Path) -> float:
    """The time at which somebody last began to hold what lies there, in seconds since 1970; 0: nothing lies there."""
    try:
        return directory.stat().st_mtime
    except FileNotFoundError:
        return 0.0
