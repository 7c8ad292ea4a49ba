"""The consumer of a trial's measurements, as the training loop sees it: ranks may train ahead of one that is slow."""

from __future__ import annotations

from typing import Protocol


class Consumer(Protocol):
    """A rank's view of whoever takes its trial's measurements."""

    def has_given_up(self) -> bool:
        """True if it wants nothing more of the trial. Asked in every step; ranks may learn of it at different times."""

    def wait(self) -> bool:
        """Returns when it has taken the measurement given last, and whether it wants another; the same on all ranks."""


class GivenUp(Exception):
    """The consumer wants nothing more of the trial: on all ranks, at the same place."""
