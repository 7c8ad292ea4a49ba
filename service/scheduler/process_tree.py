"""Ending every process that descends from this one, whatever became of those in between."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Set

import psutil

_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Makes this process the parent of every descendant whose own parent dies, so that none is lost from sight.

    Only on Linux; elsewhere orphans go to init and end by themselves, if they do.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants() -> set[psutil.Process]:
    """Every living process that descends from this one."""
    return set(psutil.Process().children(recursive=True))


def end_descendants(*, spare: Set[psutil.Process] = frozenset(), timeout_seconds: float = 10.0) -> None:
    """Kills all descendants but those in `spare`, and returns when they are gone.

    A descendant can start others while it is being killed, so it looks again until it finds none.
    """
    waited = 0.0
    while waited < timeout_seconds:
        doomed = descendants() - spare
        if not doomed:
            return
        for process in doomed:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        # Short waits: a process that dies in the middle of the tree hands its children over only then.
        psutil.wait_procs(doomed, timeout=0.5)
        waited += 0.5
