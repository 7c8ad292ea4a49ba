"""The search of one phase: the interface between a job's policy and a search, the outcomes that a search learns of, and
searches made of a sampler and a pruner."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol, TypeAlias

from search_spaces import Scalar
from service.domain import FailureReason, TrialState
from service.scheduler.policy.protocol import Decision, Fork
from service.scheduler.policy.searching.pruners import Pruner

TEACHING_REASONS = frozenset({FailureReason.DIVERGED, FailureReason.OUT_OF_MEMORY, FailureReason.INFEASIBLE})
"""Failures that the parameters caused. An error or a lost machine says nothing about them."""


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """The end of a trial, and its measurements."""

    state: TrialState
    reason: FailureReason | None
    values: tuple[float, ...]
    """Values of the objectives, in the order of the job, if it completed; they need not be finite."""
    curve: Sequence[tuple[int, float]]
    """The first objective by step."""

    @property
    def is_worst(self) -> bool:
        """True if the parameters are worse than any that gave a number."""
        if self.state is TrialState.COMPLETED:
            return not self.values or not math.isfinite(self.values[0])
        if self.state is TrialState.PRUNED:
            return not self.curve or not math.isfinite(self.curve[-1][1])
        return self.state is TrialState.FAILED and self.reason in TEACHING_REASONS


@dataclass(frozen=True, slots=True)
class New:
    """A new trial, which this choice begins."""

    parameters: Mapping[str, Scalar]
    fork: Fork | None = None
    """The checkpoint that it continues from; None: it begins without one."""


@dataclass(frozen=True, slots=True)
class GoOn:
    """A paused trial, which this choice continues."""

    number: int


@dataclass(frozen=True, slots=True)
class Drop:
    """A paused trial that is not worth continuing: it is about to be finished as pruned."""

    number: int
    why: str
    """The reason, for a person."""


Choice: TypeAlias = New | GoOn | Drop | None


class SearchStatus(Enum):
    """The status of a trial, for a search that pauses trials itself."""

    RUNNING = auto()
    """In training, or interrupted and about to go on."""
    PAUSED = auto()
    ENDED = auto()


class PhaseSearch(Protocol):
    """Decides what a phase tries next, and which of its trials are worth continuing.

    Numbers are those of the job's trials, in the order in which they begin; a phase has only some of them. Steps of a
    trial increase; `report` never gets the same step again.
    """

    def choose(self, number: int, *, may_start: bool) -> Choice:
        """The best choice; None: there is none until there is a new measurement.

        Args:
            number: the number that a new trial would get.
            may_start: whether a new one may be started.
        """

    def begin(self, number: int, parameters: Mapping[str, Scalar], *, fork: Fork | None = None) -> None:
        """Takes in a trial with these checked parameters that begins: pinned, or known from an earlier run.

        Args:
            fork: the checkpoint that it begins from, if any; only for searches that choose forks.
        """

    def until(self, number: int) -> int | None:
        """The step at which a trial that has not ended is paused next, if that is known."""

    def report(self, number: int, step: int, value: float) -> Decision:
        """Records the objective of a trial at one step; it need not be finite.

        Replaying stored measurements gives the same decisions again, except those of pruners, which depend on the
        order.
        """

    def interrupt(self, number: int) -> None:
        """Records that a running trial was interrupted; the job continues it before anything is chosen."""

    def finish(self, number: int, outcome: TrialOutcome) -> None:
        """Takes in how a trial that began has ended."""


class Sampler(Protocol):
    """Suggests parameters and learns from outcomes. Trials begin in the order of their numbers."""

    def suggest(self, number: int) -> dict[str, Scalar] | None:
        """Parameters for a new trial, which thereby begins; None: everything has been suggested."""

    def begin(self, number: int, parameters: Mapping[str, Scalar]) -> None:
        """Takes in a trial with these checked parameters that begins: pinned, or known from an earlier run."""

    def report(self, number: int, step: int, value: float) -> None:
        """Records the first objective of a trial at a step later than all before; it need not be finite."""

    def finish(self, number: int, outcome: TrialOutcome) -> None:
        """Records how a trial that began has ended, with the unreported part of its curve."""


class SampledSearch:
    """A sampler for what to try and a pruner for what to stop. It pauses nothing."""

    def __init__(self, sampler: Sampler, pruner: Pruner) -> None:
        self._sampler = sampler
        self._pruner = pruner

    def choose(self, number: int, *, may_start: bool) -> Choice:
        parameters = self._sampler.suggest(number) if may_start else None
        return None if parameters is None else New(parameters)

    def begin(self, number: int, parameters: Mapping[str, Scalar], *, fork: Fork | None = None) -> None:
        self._sampler.begin(number, parameters)

    def until(self, number: int) -> int | None:
        return None

    def report(self, number: int, step: int, value: float) -> Decision:
        self._sampler.report(number, step, value)
        return self._pruner.report(number, step, value)

    def interrupt(self, number: int) -> None:
        """Nothing to learn."""

    def finish(self, number: int, outcome: TrialOutcome) -> None:
        self._sampler.finish(number, outcome)
