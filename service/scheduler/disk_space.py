"""The room on the disks that a worker and its runs write to: where there is none, they begin nothing."""

from __future__ import annotations

import logging
import threading

from service.monitoring.readiness import why_no_room
from service.settings import Settings

logger = logging.getLogger(__name__)


class Room:
    """The room on the disks of one process, which may be asked from any thread."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._why_none: str | None = None
        """As it was told in the log last."""

    def why_none(self) -> str | None:
        """The words of `/readyz` on the disks of a service that trains on this machine; None: they have room."""
        # Checkpoints on a path are seen by a worker, wherever the ranks are that write them.
        return why_no_room(self._settings, data_are_here=True)

    def is_there(self) -> bool:
        """True if there is room; the log tells when that ends, and when there is room again."""
        why_none = self.why_none()
        with self._lock:
            had, self._why_none = self._why_none, why_none
        if why_none is not None and had is None:
            logger.warning("no job is begun until there is room: %s", why_none)
        elif why_none is None and had is not None:
            logger.info("there is room again: jobs are begun")
        return why_none is None
