"""The rules for failures: which trials are retried, and when a job stops. Pure.

Nothing is tried a third time: what ended a trial twice at the same place would end it again.

- `lost`, `store_failed`: nothing is wrong with the trial. It goes on from its checkpoint, where there is room, up to
  three times. A trial that is lost again before it measured anything more is taken to have run out of memory, unless
  it is known how its process ended: the system kills such processes. One that left by itself, or crashed, there again
  has failed by an error. When the store of checkpoints, or the room on a disk, was what failed
  last, in three trials, the job stops: no other trial would fare better. A run whose disk is still full is given back
  before any of this is asked.
- `out_of_memory`: once more, from its checkpoint and in new processes, with twice as many parts of each batch, of which
  one is in memory at a time (`accumulation_steps`): the same batches, and the same gradients up to rounding, unless the
  model normalises by batch. If that is not enough, or a batch has no more parts, it does not fit: it fails as
  `infeasible`. Meanwhile predictions of memory are corrected: `feasibility` says how.
- `error`: final at once, but for a checkpoint of its own that does not fit the trial, as one of an earlier version: the
  trial begins anew without it, once, which counts as a loss. The same error in three trials of a job is the user's to
  mend: the job stops. What a workload says of options that all trials have, it would say of each: the first one stops
  the job.
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
    """The reason why it has failed for good; None: it is retried."""
    detail: str
    """The explanation for a person."""
    divides: bool = False
    """True if it is retried with each batch in twice as many parts."""
    begins_anew: bool = False
    """True if it is retried from the beginning."""


def divided(config: TrialConfig, *, world_size: int) -> TrialConfig | None:
    """The config with each batch in twice as many parts; None: a rank has no further example to set apart."""
    parts = 2 * config.accumulation_steps
    if config.batch_size % (parts * world_size):
        return None
    return replace(config, accumulation_steps=parts)


class Retries:
    """Judges the failures of a job's trials by those before: a run begins by restoring the stored ones."""

    def __init__(self, *, suspects_memory: bool = True) -> None:
        """Knows of no failure yet.

        Args:
            suspects_memory: whether a trial that is lost twice at the same step is taken to have run out of memory: not
                where others train it, whose clients come and go.
        """
        self._suspects_memory = suspects_memory
        self._setbacks: defaultdict[int, Setbacks] = defaultdict(Setbacks)
        self._errors: defaultdict[str, dict[int, str]] = defaultdict(dict)
        self._lost_at: dict[int, int] = {}
        """The step that a trial had measured when it was lost last, in this run."""
        self._begun_anew: set[int] = set()
        """The trials that went on from nothing in this run: what they write since fits them, or nothing will."""

    def restore(self, number: int, setbacks: Setbacks, reason: FailureReason | None, detail: str | None) -> None:
        """Takes in what is stored of a trial; `reason` and `detail` of its failure, if it has failed."""
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
            step: the last one that it has measured.
            can_divide: whether its batches have more parts than it takes them in.
            can_begin_anew: whether all that is wrong is a checkpoint that it can do without.
            exit_status: of the process of a rank that died, if it is known; negative: the signal that killed it.
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
        """The reason why the job is to stop, for a person; None: it goes on."""
        for details in self._errors.values():
            if len(details) >= MAX_SAME_ERRORS:
                return f"the same error ended trials {joined(sorted(details))}: {details[min(details)]}"
        return None


def same_error(detail: str) -> str:
    """The text that errors share which are the same up to numbers, as in `IndexError: 17 is out of bounds`.

    A guess: the errors are those of libraries and of users' code, and have nothing but their text in common. Errors of
    one cause whose texts differ by a name are taken for several, and the job goes on; errors of several causes with one
    text are taken for one. Whoever mends it has the job go on.
    """
    return _NUMBER.sub("#", detail)
