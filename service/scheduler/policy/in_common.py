"""A job's policy that counts the progress of trials in what all have in common, for callers that train them in steps.

If trials differ in their steps, the same step is not the same progress. So rungs, pauses and curves are counted in what
all trials have equally much of: training examples where batch sizes differ, or the time that their steps take. A share
of that is the same share of every trial's own schedule.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from search_spaces import Scalar
from service.domain import FailureReason, Side, TrialState
from service.scheduler.policy.job_policy import JobPolicy
from service.scheduler.policy.protocol import Ask, Decision, Resume, Start, TrialHistory
from service.specification.trial_lengths.trial_length import TrialLength

LengthOf = Callable[[Side, Mapping[str, Scalar]], TrialLength]
"""The length of a trial of a side with these parameters."""


class InCommon:
    """Implements `service.scheduler.policy.protocol.Policy` on top of a job's policy that counts what trials have in
    common. No trial is a fork."""

    def __init__(self, policy: JobPolicy, length_of: LengthOf) -> None:
        self._policy = policy
        self._length_of = length_of
        self._lengths: dict[int, TrialLength] = {}

    @property
    def is_done(self) -> bool:
        return self._policy.is_done

    @property
    def num_interrupted(self) -> int:
        return self._policy.num_interrupted

    def ask(self) -> Ask:
        """The next thing to do, with the step at which a trial will be paused."""
        asked = self._policy.ask()
        if not isinstance(asked, Start | Resume):
            return asked
        length = self._lengths[asked.number] = self._length_of(asked.side, asked.parameters)
        until = None if asked.until is None else length.step_at(asked.until)
        return dataclasses.replace(asked, until=None if until == length.num_steps else until)

    def report(self, number: int, step: int, value: float, *, seconds: float = 0.0) -> Decision:
        if number not in self._lengths:
            raise ValueError(f"unknown trial {number}")
        return self._policy.report(number, self._lengths[number].done_at(step), value, seconds=seconds)

    def tell(
        self, number: int, state: TrialState, values: Sequence[float] = (), reason: FailureReason | None = None
    ) -> None:
        self._policy.tell(number, state, values, reason)

    def close(self) -> None:
        self._policy.close()

    def restore(self, history: Sequence[TrialHistory]) -> None:
        self._policy.restore([self._in_common(past) for past in history])

    def _in_common(self, past: TrialHistory) -> TrialHistory:
        length = self._lengths[past.number] = self._length_of(past.side, past.parameters)
        return dataclasses.replace(past, curve=[(length.done_at(step), value) for step, value in past.curve])
