"""A process whose files end early, as on a full disk."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def files_end_at(num_bytes: int) -> Iterator[None]:
    """This process may write no file larger than this.

    Meanwhile it does not write compiled modules either: Python takes a partial write for a complete one, so every other
    process would find a truncated module.
    """
    (soft, hard), writes_nothing = resource.getrlimit(resource.RLIMIT_FSIZE), sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        sys.dont_write_bytecode = writes_nothing
