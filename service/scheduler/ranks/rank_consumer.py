"""The messages of a rank group to a rank that trains: how many measurements were processed, and when to give up."""

from __future__ import annotations

import threading


class GroupConsumer:
    """Implements `trainers.ranks.consumer.Consumer` for the trials of one rank, one after the other.

    `take` and `give_up` are called from a thread of their own, with the trial's serial number in its group, so it does
    not matter in which order they and the start of the next trial arrive.
    """

    def __init__(self) -> None:
        self._told = threading.Condition()
        self._trial = 0
        self._num_given = 0
        self._taken = (0, 0)
        self._given_up = 0

    def begin(self, trial: int) -> None:
        """Takes in that the rank begins a trial; serial numbers grow."""
        with self._told:
            self._trial, self._num_given = trial, 0
            self._taken = max(self._taken, (trial, 0))  # tuples compare the trial first

    def give(self) -> None:
        """Takes in that the rank gives a measurement."""
        self._num_given += 1

    def take(self, trial: int, num_taken: int) -> None:
        """Records how many measurements of a trial have been processed; the next is wanted."""
        with self._told:
            self._taken = (trial, num_taken)
            self._told.notify_all()

    def give_up(self, trial: int) -> None:
        """Records that a trial is given up."""
        with self._told:
            self._given_up = trial
            self._told.notify_all()

    def has_given_up(self) -> bool:
        return self._given_up >= self._trial

    def wait(self) -> bool:
        with self._told:
            self._told.wait_for(lambda: self.has_given_up() or self._taken >= (self._trial, self._num_given))
            return self._taken >= (self._trial, self._num_given)
