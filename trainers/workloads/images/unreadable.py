"""Unreadable images: they are passed over and counted, up to a limit."""

from __future__ import annotations

from collections.abc import Sequence
from logging import getLogger

logger = getLogger(__name__)

NUM_ALWAYS_TOLERATED = 10
"""Times that an unreadable image may be met whatever its share: at first, one is a large share of those seen."""
NUM_NAMED = 5
"""Images that remarks and the final error name."""


class UnreadableImage(Exception):
    """An image's bytes cannot be read or decoded; the message says why."""


class UnreadableCount:
    """A count of unreadable images among those read; each is logged once, with its name."""

    def __init__(self, max_share: float) -> None:
        self.max_share = max_share
        self.num_seen = 0
        self.num_unreadable = 0
        self._reasons: dict[str, str] = {}

    @property
    def remarks(self) -> list[str]:
        """The first unreadable images and why, a line for each."""
        return [f"unreadable image {name} ({reason})" for name, reason in list(self._reasons.items())[:NUM_NAMED]]

    def add(self, *, num_read: int, unreadable: Sequence[tuple[str, str]]) -> None:
        """Counts a batch: how many images were read, and name and reason of each that could not be.

        Raises:
            ValueError: there were more than ten, and more than `max_share` of those seen; the message names some.
        """
        self.num_seen += num_read + len(unreadable)
        self.num_unreadable += len(unreadable)
        for name, reason in unreadable:
            if name not in self._reasons:
                self._reasons[name] = reason
                logger.warning("passed over an unreadable image: %s (%s)", name, reason)
        if self.num_unreadable > max(NUM_ALWAYS_TOLERATED, self.max_share * self.num_seen):
            some = "; ".join(f"{name} ({reason})" for name, reason in list(self._reasons.items())[:NUM_NAMED])
            raise ValueError(
                f"{self.num_unreadable} of {self.num_seen} images could not be read, more than max_unreadable_share "
                f"{self.max_share:g}: {some}" + (" ..." if len(self._reasons) > NUM_NAMED else "")
            )
