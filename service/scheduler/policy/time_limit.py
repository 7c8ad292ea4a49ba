"""The time of a whole trial, estimated from measurements: it decides when a job with a time limit starts no more
trials."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean

RESERVE = 1.5
"""The time that is reserved for continuing trials, in whole trainings: the rest of a trial takes turns with other work,
and includes evaluation."""

LARGEST_SHARE = 0.5
"""Largest share of a run's time that is kept for the confirmation: without a search there is nothing to confirm."""


@dataclass(slots=True)
class _Measured:
    """The progress of trials with one optimizer, in what the pace is told, and the seconds that it took."""

    done: int = 0
    seconds: float = 0.0


class Pace:
    """Learns from trials how long one takes from its start to its end on the machines of this run."""

    def __init__(self, whole: int, *, num_confirming: int = 0, clock: Callable[[], float]) -> None:
        """Prepares it for trials of one length; `clock` gives seconds.

        Args:
            whole: their length, in what `measured` is told: steps, or training examples.
            num_confirming: trials of the confirmation, for which time is kept, too.
        """
        self._whole = whole
        self._num_confirming = num_confirming
        self._seconds_at_first: float | None = None
        self._clock = clock
        self._last: dict[int, tuple[int, float]] = {}
        self._by_optimizer: dict[str, _Measured] = {}

    def measured(self, number: int, done: int, *, optimizer: str) -> None:
        """Takes in how far a running trial is, in steps or training examples as `whole` is."""
        now = self._clock()
        if number in self._last:
            before, then = self._last[number]
            if done > before:
                own = self._by_optimizer.setdefault(optimizer, _Measured())
                own.done += done - before
                own.seconds += now - then
        self._last[number] = done, now

    def stopped(self, number: int) -> None:
        """Takes in that a trial stopped running: the time until it continues is not its own."""
        self._last.pop(number, None)

    @property
    def seconds_per_trial(self) -> dict[str, float]:
        """The seconds of a whole training, evaluations included, by optimizer of which a trial was measured twice."""
        return {name: own.seconds / own.done * self._whole for name, own in self._by_optimizer.items()}

    def is_time_to_close(self, seconds_left: float) -> bool:
        """True if the time left is only enough to continue the existing trials, and to confirm the best.

        Whichever side's trials take longest has time for its ends.
        """
        if self._seconds_at_first is None:
            self._seconds_at_first = seconds_left
        per_trial = self.seconds_per_trial.values()
        if not per_trial:
            return False
        confirming = self._num_confirming * fmean(per_trial) / max(1, len(self._last))
        return seconds_left < RESERVE * max(per_trial) + min(confirming, LARGEST_SHARE * self._seconds_at_first)
