"""The words of the domain: states, reasons, phases, and which transition is legal."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, TypeAlias

SamplerName: TypeAlias = Literal["tpe", "gp", "cmaes", "nsga2", "nsga3", "quasi", "random", "grid"]
PrunerName: TypeAlias = Literal["asha", "hyperband", "median", "pbt", "none"]

DEFAULT_PROJECT = "default"
"""The project of whatever names none."""


class JobState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        return self in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)


class TrialState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    PRUNED = "pruned"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        return self not in (TrialState.QUEUED, TrialState.RUNNING)


class JobRequest(StrEnum):
    """A request to a running job: its run ends in order, and then it is done."""

    PAUSE = "pause"
    RESTART = "restart"
    """Go on at once, with a budget or trials that have changed since the run began."""


class TrialRequest(StrEnum):
    """A request about an unfinished trial of a running job."""

    STOP = "stop"


class OutputStream(StrEnum):
    """A stream that a rank's process prints to."""

    STDOUT = "stdout"
    STDERR = "stderr"


class DeliveryState(StrEnum):
    """The state of a message to a webhook."""

    WAITING = "waiting"
    """To be sent, or to be sent again."""
    DELIVERED = "delivered"
    FAILED = "failed"


class FailureReason(StrEnum):
    """The reason why a trial failed."""

    DIVERGED = "diverged"
    OUT_OF_MEMORY = "out_of_memory"
    INFEASIBLE = "infeasible"
    """It does not fit in memory, as was foreseen or has been seen twice, or it breaks a constraint of its job."""
    ERROR = "error"
    LOST = "lost"
    """A rank of it, its machine, or the checkpoint it was to begin from."""
    STORE_FAILED = "store_failed"
    """The store of checkpoints did not take or give one, or a disk had no room for what the trial writes."""

    @property
    def is_loss(self) -> bool:
        """True if nothing is wrong with the trial itself: it may go on from its last checkpoint."""
        return self in (FailureReason.LOST, FailureReason.STORE_FAILED)


class CancelCause(StrEnum):
    """The cause for which a trial was cancelled."""

    USER = "user"
    """A user stopped it alone."""
    JOB_CANCELLED = "job_cancelled"
    JOB_FAILED = "job_failed"
    BUDGET = "budget"
    """The time, device-hours or cost of its job were over."""
    QUOTA = "quota"
    """The device-hours of its project were spent."""


class CutShort(StrEnum):
    """The causes for which a job ends before all of its trials have been begun, or have ended."""

    BUDGET = "budget"
    """Its time, device-hours or cost are over."""
    TIME_NEARLY_OVER = "time nearly over"
    """The rest of its time went to the trials that had begun, and to the confirmation of the best."""
    QUOTA = "quota"
    """The device-hours of its project are spent."""


class Currency(StrEnum):
    """The currency: what two configs have spent equally much of when they are compared."""

    STEPS = "steps"
    SECONDS = "seconds"
    """Seconds of training, without evaluation and checkpoints."""
    EXAMPLES = "examples"
    TOKENS = "tokens"


class Phase(StrEnum):
    """The part of a job that a trial belongs to."""

    SEARCH = "search"
    BASELINE = "baseline"
    CONFIRMATION = "confirmation"
    """The best configs of the two, trained again with new seeds."""


Side: TypeAlias = str
"""A side of a job, whose trials share a search space and a budget: `search`, or a baseline, by its optimizer's name."""


def side_of(phase: Phase, optimizer: str) -> Side:
    """The side of a trial of search or baseline that trains with this optimizer."""
    return Phase.SEARCH.value if phase is Phase.SEARCH else optimizer


def phase_of(side: Side) -> Phase:
    """The phase of a side's trials."""
    return Phase.SEARCH if side == Phase.SEARCH else Phase.BASELINE


class Direction(StrEnum):
    MINIMIZE = "minimize"
    MAXIMIZE = "maximize"

    def is_better(self, value: float, than: float) -> bool:
        return value < than if self is Direction.MINIMIZE else value > than


@dataclass(frozen=True, slots=True)
class Objective:
    """A metric and the direction in which it is better."""

    metric: str
    """The name of the metric."""
    direction: Direction
    """The direction in which it is better."""


# A running job goes back to the queue when its worker stops or loses it; a running trial likewise. A finished job goes
# there when a user wants more of it, a finished trial when it is to be tried again: `steer` and `steer_trials` of
# `service.use_cases` say when. A job that had succeeded, and is cancelled before it has more, goes back to that.
JOB_TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    JobState.QUEUED: frozenset(
        {JobState.RUNNING, JobState.PAUSED, JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED}
    ),
    JobState.RUNNING: frozenset(
        {JobState.QUEUED, JobState.PAUSED, JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED}
    ),
    JobState.PAUSED: frozenset({JobState.QUEUED, JobState.SUCCEEDED, JobState.CANCELLED}),
    JobState.SUCCEEDED: frozenset({JobState.QUEUED}),
    JobState.FAILED: frozenset({JobState.QUEUED}),
    JobState.CANCELLED: frozenset({JobState.QUEUED}),
}

TRIAL_TRANSITIONS: dict[TrialState, frozenset[TrialState]] = {
    TrialState.QUEUED: frozenset(
        {TrialState.RUNNING, TrialState.PRUNED, TrialState.FAILED, TrialState.CANCELLED}  # pruned: it was paused
    ),
    TrialState.RUNNING: frozenset(
        {TrialState.QUEUED, TrialState.COMPLETED, TrialState.PRUNED, TrialState.FAILED, TrialState.CANCELLED}
    ),
    TrialState.COMPLETED: frozenset(),
    TrialState.PRUNED: frozenset({TrialState.QUEUED}),
    TrialState.FAILED: frozenset({TrialState.QUEUED}),
    TrialState.CANCELLED: frozenset({TrialState.QUEUED}),
}


class WeightsOf(StrEnum):
    """The configs of a job whose trained weights are kept."""

    RECOMMENDED = "recommended"
    BASELINE = "baseline"
