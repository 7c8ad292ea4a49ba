"""The interface between the choice of a job's trials and the code that runs them: value types and the `Policy`
protocol.

A policy is pure: no Ray, no SQL, no clock. The code that runs trials asks it for work, reports measurements to it and
tells it how trials ended; the same policy can be simulated on stored learning curves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, TypeAlias

from search_spaces import Scalar
from service.domain import FailureReason, Phase, Side, TrialState, phase_of


@dataclass(frozen=True, slots=True)
class Repeats:
    """The config that a confirmation trial repeats, and its new seed."""

    number: int
    """The trial whose config it is."""
    side: Side
    """The side of that trial."""
    seed: int
    """The new seed, instead of that trial's."""


@dataclass(frozen=True, slots=True)
class Fork:
    """The checkpoint of another trial whose weights a trial starts from, with its own hyperparameters."""

    number: int
    """The trial whose checkpoint it begins from."""
    step: int
    """The step of that checkpoint."""


@dataclass(frozen=True, slots=True)
class Start:
    """Start a new trial."""

    number: int
    side: Side
    parameters: Mapping[str, Scalar]
    """Value of each active parameter of the side's search space, by path name."""
    until: int | None = None
    """The step at which the policy will pause it; None: it may run to its end."""
    repeats: Repeats | None = None
    """The config that it repeats, in the confirmation phase, and only there."""
    fork: Fork | None = None
    """None: it begins without a checkpoint."""

    @property
    def phase(self) -> Phase:
        """The phase of the job that the trial belongs to."""
        return phase_of(self.side) if self.repeats is None else Phase.CONFIRMATION


@dataclass(frozen=True, slots=True)
class Resume:
    """Continue an unfinished trial, from its latest checkpoint or, without one, from its beginning."""

    number: int
    side: Side
    parameters: Mapping[str, Scalar]
    until: int | None = None
    """The step at which the policy will pause it, as in `Start`."""
    fork: Fork | None = None
    """The checkpoint that it began from; None: it began without one."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """End a paused trial that is not worth continuing: the caller tells it as `pruned`, and asks again."""

    number: int
    why: str = "paused early, and not promising enough to go on with"
    """The reason, for a person."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do until a running trial ends or is requeued."""


@dataclass(frozen=True, slots=True)
class Done:
    """Every trial of the job has ended."""

    is_early: bool = False
    """True if the policy would have begun more trials if it had not been closed."""


Ask: TypeAlias = Start | Resume | GiveUp | Wait | Done


class Decision(StrEnum):
    """The fate of a trial after a measurement."""

    CONTINUE = "continue"
    PAUSE = "pause"
    """Keep its checkpoint and free its resources; `ask` returns it again as `Resume` or `GiveUp`."""
    STOP = "stop"
    """End it; the caller then tells it as `pruned`."""


@dataclass(frozen=True, slots=True)
class TrialHistory:
    """The stored facts of one trial: everything that a policy needs to continue after an interruption."""

    number: int
    side: Side
    """The side of the trial; of a confirmation trial, that of the config that it repeats."""
    parameters: Mapping[str, Scalar]
    state: TrialState
    reason: FailureReason | None = None
    values: Sequence[float] = ()
    """The job's objectives at the last measurement, in the order of the job; they need not be finite. They count only
    if the trial completed."""
    curve: Sequence[tuple[int, float]] = field(default=())
    """The first objective at each measured step, in the order of steps."""
    repeats: Repeats | None = None
    """The config that it repeats, in the confirmation phase, and only there."""
    spared: bool = False
    """True if it is neither pruned nor paused, because a user asked to try it again."""
    proposed: bool = False
    """True if a user proposed it: it does not count as a pinned assignment."""
    fork: Fork | None = None
    """The checkpoint that it began from, if any; its curve then begins with its parent's measurement there."""
    seconds: tuple[float, ...] = ()
    """Training time up to each point of its curve."""


class Policy(Protocol):
    """Decides what a job tries, and which trials are worth continuing."""

    def ask(self) -> Ask:
        """The next thing to do. `Start` and `Resume` make the trial running until it is told."""

    def report(self, number: int, step: int, value: float, *, seconds: float = 0.0) -> Decision:
        """Takes in the first objective of a running trial at one step; not finite is allowed.

        Repeating a step, as a resumed trial does, changes nothing and gives `CONTINUE`.

        Args:
            seconds: time that it has trained up to there.
        """

    def tell(
        self, number: int, state: TrialState, values: Sequence[float] = (), reason: FailureReason | None = None
    ) -> None:
        """Records how a running trial ended, or with state `queued` that it was interrupted and must be resumed.

        Args:
            values: the values of the job's objectives, in its order, where the trial completed.
        """

    def close(self) -> None:
        """Stops starting trials: the time left is for continuing the existing ones."""

    def restore(self, history: Sequence[TrialHistory]) -> None:
        """Takes in everything stored of a job; once, before anything is asked."""
