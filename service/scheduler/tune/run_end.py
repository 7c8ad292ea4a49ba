"""The end of a job's run: what ends it, how it leaves Ray Tune, and how its process tells the worker."""

from __future__ import annotations

from collections.abc import Set
from enum import IntEnum, StrEnum
from typing import Protocol

from service.domain import CutShort


class Ending(StrEnum):
    """The causes of a run's end."""

    DONE = "done"
    """The policy has nothing left to try."""
    DONE_EARLY = "done early"
    """The policy has nothing left to try, because it began no more trials when the job's time was nearly over."""
    LEASE_LOST = "lease lost"
    """The job was cancelled or belongs to another worker: nothing may be written any more."""
    BUDGET_SPENT = "budget spent"
    """The job's time is up: it finishes with its results so far."""
    QUOTA_SPENT = "quota spent"
    """Its project's device-hours are used up: likewise."""
    ASKED = "asked to end"
    """The job will be paused, or will continue in another run with another budget or other trials."""
    STOPPED = "stopped"
    """The worker stops, or is gone: the job goes back to the queue."""
    NO_ROOM = "no room"
    """A disk that the run writes to is full: the job goes back to the queue, and waits there for room."""

    @property
    def cut_short(self) -> CutShort | None:
        """The cause if the job ends before its trials have ended; else None."""
        return _CUT_SHORT.get(self)

    @property
    def gives_back(self) -> bool:
        """True if the job continues in another run."""
        return self in (Ending.ASKED, Ending.STOPPED, Ending.NO_ROOM)


_CUT_SHORT = {
    Ending.DONE_EARLY: CutShort.TIME_NEARLY_OVER,
    Ending.BUDGET_SPENT: CutShort.BUDGET,
    Ending.QUOTA_SPENT: CutShort.QUOTA,
}


class Signals(Protocol):
    """The signals to a run from outside: to end, to stop trials, and how much time is left."""

    def ending(self) -> Ending | None:
        """The cause of an early end, if there is any."""

    def to_stop(self) -> Set[int]:
        """The trials that users have asked to stop."""

    def seconds_left(self) -> float:
        """The time until the limit; infinite without one."""

    def look_for_room(self) -> None:
        """Ends the run if a disk that it writes to is full: to be called when something found no room."""


class ExitStatus(IntEnum):
    """Exit statuses of a run's process. Any other status and any signal is a crash, too: Ray's own code can end it."""

    IN_ORDER = 0
    """The job has finished, or no longer belongs to this run."""
    CRASHED = 1
    """Python's own status after an exception that nobody caught."""
    CUT_SHORT = 75
    """The run was told to end but did not end at once or in time: the worker gives the job back. Not a crash."""


class RunEnded(BaseException):
    """Leaves Tune at once, whatever its trials are doing.

    Not an `Exception`: Tune answers those by waiting for every actor, and a training step can take minutes. Its own end
    of a finished run also takes seconds, for summaries that nobody reads.
    """

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending)
        self.ending = ending


class JobImpossible(BaseException):
    """The job cannot be run, or cannot be continued; the message is for a person. Leaves Tune as `RunEnded` does."""
