"""Disks without room: their errors, and patience with one that is full for a moment."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from typing import TypeVar

from trainers.retry import retry

T = TypeVar("T")

FULL_DISK_SECONDS = 60.0
"""Seconds for which what found no room is tried again; well below the time that ranks wait for each other."""
FIRST_PAUSE_SECONDS = 0.2
"""Doubled with each attempt, by judgement."""

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})

logger = logging.getLogger(__name__)


def lacks_room(error: BaseException | None) -> bool:
    """True if a disk is full, or what its user may have of it: a fault of the place, whatever was to be written."""
    return isinstance(error, OSError) and error.errno in _NO_ROOM


def when_there_is_room(action: Callable[[], T]) -> T:
    """The result of `action`, tried again for a while as long as it finds no room on a disk.

    Raises:
        OSError: the action's; `lacks_room` tells whether there still was none.
    """
    return retry(
        action,
        is_temporary=lacks_room,
        give_up_seconds=FULL_DISK_SECONDS,
        first_pause_seconds=FIRST_PAUSE_SECONDS,
        tell=lambda error, pause: logger.warning("%s; tried again in %.1f s", error, pause),
    )
