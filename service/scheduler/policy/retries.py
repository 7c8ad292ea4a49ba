"""The rules for failures: which trials are retried, and when a job stops. Pure.

Nothing is tried a third time at the same place: a cause that ended a trial twice there would end it again.

- `lost`, `store_failed`: nothing is wrong with the trial. It continues from its checkpoint, where there is room, up to
  three times. A trial that is lost again before it measured anything more counts as out of memory, because the system
  kills such processes, unless it is known how its process ended. If the process exited by itself or crashed at the same
  place again, the trial has failed by an error. If in three trials the last failure was of the store of checkpoints, or
  of room on a disk, the job stops: no other trial would do better. A run whose disk is still full is given back before
  any of this is decided.
- `out_of_memory`: the trial is tried once more, from its checkpoint and in new processes, with each batch in twice as
  many parts, one of which is in memory at a time (`accumulation_steps`). The batches are the same, and so are the
  gradients up to rounding, unless the model normalises by batch. If that is not enough, or a batch cannot be divided
  further, the trial does not fit: it fails as `infeasible`. Predictions of memory are corrected, as `feasibility` says.
- `error`: final at once. The exception is a checkpoint of the trial that does not fit it, for instance of an earlier
  version: the trial begins again without it, once, which counts as a loss. If the same error ends three trials of a
  job, the job stops, and the user has to fix it. If a workload refuses options that all trials have, it would refuse
  each of them: the first refusal stops the job.
- `diverged`, `infeasible`: final at once, and the search learns from them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, replace

from service.domain import FailureReason
from service.evidence.in_words.wording import joined
from service.scheduler.exit_statuses import is_own_doing, may_be_of_memory
from trainers.config import TrialConfig

MAX_LOSSES = 3
"""Retries of a trial whose rank or machine died."""
MAX_MEMORY_FAILURES = 1
"""Retries of a trial that ran out of memory, each with smaller parts of the batch."""
MAX_SAME_ERRORS = 3
"""Trials that one error may end before it ends the job."""

# An address or another long hexadecimal number, or a number with its sign, fraction and exponent.
_NUMBER = re.compile(r"0x[0-9a-fA-F]+|[-+]?[0-9a-f]{16,}|[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


@dataclass(frozen=True, slots=True)
class Setbacks:
    """The retries of a trial, by reason; stored with it, so that no restart forgets them."""

    losses: int = 0
    memory_failures: int = 0


@dataclass(frozen=True, slots=True)
class FailureVerdict:
    """The fate of a trial that failed."""

    reason: FailureReason | None
    """The reason of its final failure; None: it is retried."""
    detail: str
    """The explanation for a person."""
    divides: bool = False
    """True if it is retried with each batch in twice as many parts."""
    begins_anew: bool = False
    """True if it is retried from the beginning."""


def divided(config: TrialConfig, *, world_size: int) -> TrialConfig | None:
    """The config with each batch in twice as many parts; None: a rank has too few examples for that."""
    parts = 2 * config.accumulation_steps
    if config.batch_size % (parts * world_size):
        return None
    return replace(config, accumulation_steps=parts)


class Retries:
    """Judges the failures of a job's trials by earlier ones; a run begins by restoring the stored ones."""

    def __init__(self, *, suspects_memory: bool = True) -> None:
        """Knows of no failure yet.

        Args:
            suspects_memory: whether a trial that is lost twice at the same step counts as out of memory: not if clients
                train it, which come and go.
        """
        self._suspects_memory = suspects_memory
        self._setbacks: defaultdict[int, Setbacks] = defaultdict(Setbacks)
        self._errors: defaultdict[str, dict[int, str]] = defaultdict(dict)
        self._lost_at: dict[int, int] = {}
        """The last step that a trial had measured when it was last lost, in this run."""
        self._begun_anew: set[int] = set()
        """The trials that began again in this run: if the checkpoints that they have written since do not fit, none
        will."""

    def restore(self, number: int, setbacks: Setbacks, reason: FailureReason | None, detail: str | None) -> None:
        """Restores the stored setbacks of a trial; `reason` and `detail` are those of its failure, if it has failed."""
        self._setbacks[number] = setbacks
        if reason in (FailureReason.ERROR, FailureReason.STORE_FAILED):
            self._errors[same_error(detail or "")][number] = detail or ""

    def setbacks(self, number: int) -> Setbacks:
        """The retries of a trial so far."""
        return self._setbacks[number]

    def judge(
        self,
        number: int,
        reason: FailureReason,
        detail: str,
        *,
        step: int = 0,
        can_divide: bool = False,
        can_begin_anew: bool = False,
        exit_status: int | None = None,
    ) -> FailureVerdict:
        """The fate of a trial that failed for `reason`.

        Args:
            detail: what happened.
            step: the last step that it has measured.
            can_divide: whether its batches have more parts than it takes them in.
            can_begin_anew: whether only a checkpoint is wrong, and the trial can begin without it.
            exit_status: the exit status of the process of a rank that died, if it is known; negative: the signal that
                killed it.
        """
        had = self._setbacks[number]
        divides = can_divide and had.memory_failures < MAX_MEMORY_FAILURES
        is_again = self._lost_at.get(number) == step
        match reason:
            case FailureReason.LOST if is_again and self._suspects_memory and may_be_of_memory(exit_status):
                if divides:
                    return self._divide(number, f"lost twice at step {step}, perhaps out of memory: {detail}")
                detail = f"lost at step {step} again, perhaps out of memory: {detail}"
            case FailureReason.LOST if is_again and exit_status is not None and is_own_doing(exit_status):
                detail = f"twice at step {step}: {detail}"
                self._errors[same_error(detail)][number] = detail
                return FailureVerdict(FailureReason.ERROR, detail)
            case FailureReason.LOST | FailureReason.STORE_FAILED if had.losses < MAX_LOSSES:
                if reason is FailureReason.LOST:
                    self._lost_at[number] = step
                self._setbacks[number] = replace(had, losses=had.losses + 1)
                return FailureVerdict(None, f"lost; goes on from its last checkpoint: {detail}")
            case FailureReason.LOST | FailureReason.STORE_FAILED:
                detail = f"lost {had.losses + 1} times; last: {detail}"
                if reason is FailureReason.STORE_FAILED:
                    self._errors[same_error(detail)][number] = detail
            case FailureReason.OUT_OF_MEMORY if divides:
                return self._divide(number, f"out of memory: {detail}")
            case FailureReason.OUT_OF_MEMORY:
                how = "out of memory"
                if had.memory_failures:
                    how += f" {had.memory_failures + 1} times, with smaller parts of the batch too"
                elif not can_divide:
                    how += ", and its batch has no smaller parts"
                return FailureVerdict(FailureReason.INFEASIBLE, f"{how}: {detail}")
            case FailureReason.ERROR if can_begin_anew and number not in self._begun_anew and had.losses < MAX_LOSSES:
                self._begun_anew.add(number)
                self._setbacks[number] = replace(had, losses=had.losses + 1)
                return FailureVerdict(None, f"begins anew, without its checkpoint: {detail}", begins_anew=True)
            case FailureReason.ERROR:
                self._errors[same_error(detail)][number] = detail
        return FailureVerdict(reason, detail)

    def _divide(self, number: int, why: str) -> FailureVerdict:
        had = self._setbacks[number]
        self._setbacks[number] = replace(had, memory_failures=had.memory_failures + 1)
        return FailureVerdict(
            None, f"goes on in new processes with each batch in twice as many parts; {why}", divides=True
        )

    def why_to_stop(self) -> str | None:
        """The reason why the job has to stop, for a person; None: it continues."""
        for details in self._errors.values():
            if len(details) >= MAX_SAME_ERRORS:
                return f"the same error ended trials {joined(sorted(details))}: {details[min(details)]}"
        return None


def same_error(detail: str) -> str:
    """The common text of errors that differ only in numbers, as in `IndexError: 17 is out of bounds`.

    It is a guess: errors come from libraries and users' code, and only their texts can be compared. Errors with one
    cause whose texts differ by a name count as different, and the job continues. Errors with different causes and the
    same text count as one; after fixing it, the user continues the job.
    """
    return _NUMBER.sub("#", detail)
