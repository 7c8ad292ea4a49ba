"""Names of metrics and parameters as trackers and file systems take them, whatever a workload or a user called them."""

from __future__ import annotations

import re
from collections.abc import Iterable

MAX_LENGTH = 200
"""Characters. MLflow takes 250, and file systems 255 bytes; the rest is for what tells equal names apart."""
_UNSAFE = re.compile(r"[^A-Za-z0-9_\-. ]")


class SafeNames:
    """Gives each name one of letters, digits, `_-.` and spaces, that no other name of the same run has."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._safe: dict[str, str] = {}
        self._taken = set(taken)

    def of(self, name: str) -> str:
        """The safe name; the same one each time."""
        if name not in self._safe:
            plain = _UNSAFE.sub("_", name).strip(". ")[:MAX_LENGTH] or "_"
            safe, count = plain, 1
            while safe in self._taken:
                count += 1
                safe = f"{plain}-{count}"
            self._taken.add(safe)
            self._safe[name] = safe
        return self._safe[name]
