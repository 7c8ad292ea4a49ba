"""The rate at which a caller may ask: token buckets in the memory of one process.

Several API processes behind one address each allow the rate. A shared count would cost every request a write.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

BURST_SECONDS = 4.0
"""A caller that was quiet for so long may send all that at once."""
MAX_CALLERS = 10_000
"""Remembered at once; beyond them, those who asked longest ago begin anew."""


class RateLimit:
    """A bucket for each caller, filled steadily; each request takes one unit. Lives in one event loop."""

    def __init__(self, requests_per_second: float, clock: Callable[[], float]) -> None:
        """Begins with full buckets.

        Args:
            requests_per_second: 0: no limit.
            clock: monotonic seconds.
        """
        self._rate = requests_per_second
        self._size = max(1.0, requests_per_second * BURST_SECONDS)
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, caller: str) -> float:
        """Takes one unit of the caller's bucket; the seconds until there is one again, 0 if it was there."""
        if not self._rate:
            return 0.0
        now = self._clock()
        left = self._left(caller, now)
        self._buckets.pop(caller, None)
        wait = 0.0 if left >= 1.0 else (1.0 - left) / self._rate
        self._buckets[caller] = (left if wait else left - 1.0, now)
        if len(self._buckets) > MAX_CALLERS:
            self._buckets.popitem(last=False)
        return wait

    def is_spent(self, caller: str) -> bool:
        """True if `take` would have the caller wait; takes nothing."""
        return bool(self._rate) and self._left(caller, self._clock()) < 1.0

    def _left(self, caller: str, now: float) -> float:
        left, seen = self._buckets.get(caller, (self._size, now))
        return min(self._size, left + (now - seen) * self._rate)
