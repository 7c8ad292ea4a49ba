"""Retrying what may soon go well: a database or a store that is out of reach for a moment."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

LONGEST_PAUSE_SECONDS = 5.0
"""Short beside the shortest of the waits that callers allow, a minute: little of it passes after the outage."""


def retry(
    action: Callable[[], T],
    *,
    is_temporary: Callable[[Exception], bool],
    give_up_seconds: float,
    first_pause_seconds: float,
    longest_pause_seconds: float = LONGEST_PAUSE_SECONDS,
    may_wait: Callable[[], bool] = lambda: True,
    tell: Callable[[Exception, float], object] = lambda _error, _pause: None,
    sleep: Callable[[float], object] = time.sleep,
) -> T:
    """The result of `action`, tried again after pauses that double, while its error is temporary.

    Args:
        is_temporary: says of an error whether the same may do later; any other error is raised at once.
        give_up_seconds: an error that comes so late that the next try would be later still is raised.
        may_wait: asked before each pause; False raises the error at once.
        tell: hears of the error and the pause before each.
    """
    deadline, pause = time.monotonic() + give_up_seconds, first_pause_seconds
    while True:
        try:
            return action()
        except Exception as error:
            if not is_temporary(error) or time.monotonic() + pause > deadline or not may_wait():
                raise
            tell(error, pause)
        sleep(pause)
        pause = min(2 * pause, longest_pause_seconds)
