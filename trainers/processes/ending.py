"""The end of a process that has imported much, above all of a fork of one."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_taking_down_modules() -> Iterator[None]:
    """Ends the process, and its forks, as soon as all exit handlers were called, with the status that the block gives.

    What Python would still do is to take down every module. A fork would copy the memory of all of them for it, which
    takes longer than most questions to it. To be entered before anything is imported: of all exit handlers, the first
    is called last.
    """
    status = 1

    def end() -> None:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)

    atexit.register(end)
    try:
        yield
        status = 0
    except SystemExit as left:
        status = left.code if isinstance(left.code, int) else int(left.code is not None)
        raise
