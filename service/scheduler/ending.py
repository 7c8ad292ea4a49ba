"""How a job's run leaves Ray Tune."""

from __future__ import annotations

from enum import StrEnum


class Ending(StrEnum):
    """What ends a run."""

    DONE = "done"
    """The policy has nothing left to try."""
    LEASE_LOST = "lease lost"
    """The job was cancelled or belongs to another worker: nothing may be written any more."""
    BUDGET_SPENT = "budget spent"
    """The job's time is up: it finishes with what it has."""
    ASKED = "asked to end"
    """The job is to be paused, or to go on with another budget or other trials: it changes hands."""
    STOPPED = "stopped"
    """The worker stops, or is gone: the job goes back to the queue."""


class RunEnded(BaseException):
    """Leaves Tune at once, whatever its trials are doing.

    Not an `Exception`: Tune answers those by waiting for every actor, and a training step can take minutes. Its own
    end of a finished run takes seconds too, for summaries that nobody reads.
    """

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending)
        self.ending = ending


class JobImpossible(BaseException):
    """The job cannot be run, or not any further; the message is for a person. Leaves Tune as `RunEnded` does."""
