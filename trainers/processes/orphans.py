"""Orphans: processes whose parent has ended, which Linux gives to the nearest ancestor that adopts them."""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
"""A number of Linux (`linux/prctl.h`) that Python has no name for: orphaned descendants become children of this
process."""


def adopt_orphans() -> None:
    """Makes this process the parent of every descendant whose own parent dies, so that none is lost from sight; forks
    of it are none by that.

    Only on Linux; elsewhere orphans go to init and end by themselves, if they do.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children() -> set[int]:
    """The ids of the processes whose parent is this one, ended ones of which it has taken no notice included. Only on
    Linux."""
    own, found = os.getpid(), set()
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            with suppress(OSError):  # it is gone
                # The name of the program comes before, in parentheses, and may hold any character.
                state_and_parent = Path(entry.path, "stat").read_bytes().rpartition(b")")[2].split()
                if int(state_and_parent[1]) == own:
                    found.add(int(entry.name))
    return found
