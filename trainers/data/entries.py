"""Entries of directories of data, some of which are links."""

from __future__ import annotations

import errno
import os
from typing import Literal


def kind_of(entry: os.DirEntry[str]) -> Literal["file", "directory"] | None:
    """The kind of what an entry is or links to; None: of another kind, or a link that leads nowhere or in a circle.

    Raises:
        OSError: there is no telling, e.g. because the place that a link leads to may not be looked at.
    """
    try:
        return "file" if entry.is_file() else "directory" if entry.is_dir() else None
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return None
