"""The processes of runs: ending all descendants of this process, even if the processes between are gone, and finding
those whose worker is gone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Set
from contextlib import suppress

import psutil


def descendants() -> set[psutil.Process]:
    """Every living process that descends from this one."""
    return set(psutil.Process().children(recursive=True))


def children_named(*names: str) -> set[psutil.Process]:
    """The children of this process with these names, including ended ones that it has not waited for."""
    found = set()
    for process in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):
            if process.name() in names:
                found.add(process)
    return found


def any_is_gone(processes: Iterable[psutil.Process]) -> bool:
    """True if any of these has ended, even if nobody has waited for it yet."""
    for process in processes:
        try:
            if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
    return False


def marked(variable: str, is_meant: Callable[[str], bool]) -> set[psutil.Process]:
    """The other processes of this user in whose environment `variable` has a value for which `is_meant` holds."""
    own = os.getpid()
    found = set()
    for process in psutil.process_iter():
        # For an ended process there is an error or no environment; another user's cannot be read.
        with suppress(psutil.Error, OSError):
            value = process.environ().get(variable)
            if value is not None and is_meant(value) and process.pid != own:
                found.add(process)
    return found


def end_descendants(*, spare: Set[psutil.Process] = frozenset(), timeout_seconds: float = 10.0) -> None:
    """Kills all descendants except those in `spare`, and returns when they are gone."""
    end(lambda: descendants() - spare, timeout_seconds=timeout_seconds)


def end(find: Callable[[], Set[psutil.Process]], *, timeout_seconds: float = 10.0) -> None:
    """Kills the processes that `find` returns, and returns when they are gone.

    A process can start others while it is being killed, so it looks again until it finds none.
    """
    waited = 0.0
    while waited < timeout_seconds:
        doomed = find()
        if not doomed:
            return
        for process in doomed:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        # Short waits: only when a process in the middle of the tree has died, its children become ours.
        psutil.wait_procs(doomed, timeout=0.5)
        waited += 0.5
