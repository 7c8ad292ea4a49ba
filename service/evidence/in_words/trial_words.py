"""The end of a trial in words, with what to do: pure functions of typed values, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, assert_never

from service.domain import FailureReason, JobState, TrialRequest, TrialState
from service.evidence.in_words.wording import counted, duration, number
from trainers.stored_config import StoredConfig

RETRY_TRAINS_TO_THE_END = "To see how it would have ended, retry it: it then trains to its last step and is not pruned."


@dataclass(frozen=True, slots=True)
class TrialFacts:
    """Facts of a trial's end."""

    state: TrialState
    reason: FailureReason | None
    step: int
    """Steps measured so far."""
    num_steps: int
    """The step at which it ends if it goes to its end."""
    runs: int
    """Times it was started."""
    seconds: float = 0.0
    """Training time up to `step`."""
    requested: TrialRequest | None = None
    has_detail: bool = False
    """True if there is an explanation beside these words."""
    clips_gradients: bool = False
    is_low_precision: bool = False
    """True if it is trained in 16 bits."""
    job_state: JobState = JobState.RUNNING
    is_fork: bool = False
    """True if it began from another one's checkpoint."""


class ToldTrial(Protocol):
    """A trial as a row of the store or an answer of the API has it."""

    @property
    def state(self) -> TrialState: ...
    @property
    def reason(self) -> FailureReason | None: ...
    @property
    def detail(self) -> str | None: ...
    @property
    def requested(self) -> TrialRequest | None: ...
    @property
    def step(self) -> int: ...
    @property
    def runs(self) -> int: ...
    @property
    def seconds(self) -> float: ...
    @property
    def forked_from(self) -> int | None: ...
    @property
    def config(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Standing:
    """A trial's place among the others of its side: a pruned one's among those measured at the same step by then, a
    completed one's among the completed ones."""

    metric: str
    step: int
    value: float
    num_others: int
    num_better: int
    """Number of those that are better."""
    best: float | None
    """The best value of the others; None: there are none."""


@dataclass(frozen=True, slots=True)
class RepeatedTrial:
    """The trial whose config one repeats with another seed."""

    number: int
    metric: str
    found_value: float | None
    """The objective of that trial."""
    value: float | None
    """The objective of this one."""


@dataclass(frozen=True, slots=True)
class TrialAccount:
    """An account of a trial's end."""

    headline: str
    why: Sequence[str]
    """A sentence each."""
    advice: Sequence[str]
    """Advice: what a person may do, a sentence each."""


def facts_of(trial: ToldTrial, job_state: JobState) -> TrialFacts:
    """The facts of the end of a trial."""
    config = StoredConfig.of(trial.config)
    return TrialFacts(
        state=trial.state,
        reason=trial.reason,
        step=trial.step,
        num_steps=config.num_steps,
        runs=trial.runs,
        seconds=trial.seconds,
        requested=trial.requested,
        has_detail=bool(trial.detail),
        clips_gradients=config.gradient_clip_norm is not None,
        is_low_precision=config.precision != "float32",
        job_state=job_state,
        is_fork=trial.forked_from is not None,
    )


def account_of(
    trial: TrialFacts, standing: Standing | None = None, repeated: RepeatedTrial | None = None
) -> TrialAccount:
    """Tells what became of a trial, why, and what to do.

    Args:
        standing: the standing of a trial that was pruned or completed; None: nothing is known of it.
        repeated: None: it repeats none, or nothing is known of that.
    """
    match trial.state:
        case TrialState.COMPLETED:
            return TrialAccount(f"Completed all {counted(trial.num_steps, 'step')}", _completed(standing, repeated), [])
        case TrialState.PRUNED:
            return _pruned(trial, standing)
        case TrialState.FAILED:
            return _failed(trial)
        case TrialState.CANCELLED:
            at = f" after step {trial.step}" if trial.step else " before it was measured"
            advice = [] if trial.is_fork else ["It can be retried, from its beginning."]
            return TrialAccount(f"Cancelled{at}", [], advice)
        case TrialState.RUNNING:
            return _running(trial)
        case TrialState.QUEUED:
            return _queued(trial)
    assert_never(trial.state)


def _completed(standing: Standing | None, repeated: RepeatedTrial | None) -> list[str]:
    if repeated is not None:
        return [
            f"It repeats trial {repeated.number} with another seed: {repeated.metric} is {number(repeated.value)} "
            f"here, and was {number(repeated.found_value)} there."
        ]
    if standing is None:
        return []
    if not standing.num_others:
        return ["It is the only trial of its side that has completed."]
    value = f"Its {standing.metric} is {number(standing.value)}"
    if not standing.num_better:
        others = f"none of the {standing.num_others} other trials of its side that completed is better"
        if standing.num_others == 1:
            others = "the one other trial of its side that completed is no better"
        return [f"{value}: {others}. The best of many is partly luck."]
    place = f"{standing.num_better + 1} of the {standing.num_others + 1}"
    return [f"{value}, place {place} of its side that completed; the best has {number(standing.best)}."]


def _running(trial: TrialFacts) -> TrialAccount:
    if trial.requested is TrialRequest.STOP:
        why = ["A user asked for it to stop: it ends at its next measurement, or completes if that is its last."]
        return TrialAccount(f"Stopping after step {trial.step}", why, [])
    why = [_started_again(trial)] if trial.runs > 1 else []
    if not trial.step:
        return TrialAccount("Training, nothing measured yet", why, [])
    left = trial.seconds / trial.step * (trial.num_steps - trial.step)
    why.insert(0, f"At its pace so far, about {duration(left)} of training are left if it goes to its end.")
    return TrialAccount(f"Training: step {trial.step} of {trial.num_steps}", why, [])


def _queued(trial: TrialFacts) -> TrialAccount:
    why, advice = list[str](), list[str]()
    if trial.step:
        why.append("It keeps its checkpoint, and goes on from there when its turn comes; else it is pruned.")
    if trial.job_state is JobState.PAUSED:
        why.append("Its job is paused.")
        advice.append("Resume the job.")
    elif trial.job_state is JobState.QUEUED:
        why.append("Its job waits for a worker.")
    elif not why and not trial.has_detail:
        why.append("The trials before it train first.")
    at = f"Paused after step {trial.step} of {trial.num_steps}" if trial.step else "Waits for its turn"
    return TrialAccount(at, why, advice)


def _pruned(trial: TrialFacts, standing: Standing | None) -> TrialAccount:
    why = []
    if standing is not None and standing.num_others:
        others = f"{counted(standing.num_others, 'other trial')} of its side"
        why.append(
            f"At step {standing.step} its {standing.metric} was {number(standing.value)}. Of {others} measured there "
            f"by then, {_count(standing.num_better)} better; the best had {number(standing.best)}."
        )
    elif not trial.has_detail:
        why.append("Other trials promised more for the same training time.")
    why.append("Its time went to trials that promised more; nothing is wrong with it.")
    return TrialAccount(
        f"Pruned at step {trial.step} of {trial.num_steps}", why, [] if trial.is_fork else [RETRY_TRAINS_TO_THE_END]
    )


def _failed(trial: TrialFacts) -> TrialAccount:
    reason = trial.reason
    assert reason is not None, "a failed trial has a reason"
    again = [] if trial.is_fork else ["Then retry the trial."]
    match reason:
        case FailureReason.DIVERGED:
            return _diverged(trial)
        case FailureReason.INFEASIBLE if not trial.runs:
            return TrialAccount(
                "Not launched: it would not fit into memory",
                ["It was foreseen to need more memory than a rank has. The search avoids configs like it."],
                [
                    "If many trials end so: narrow what makes them large (as max_preconditioner_dim), give each rank "
                    "more memory, or spread the model over more ranks."
                ],
            )
        case FailureReason.INFEASIBLE:
            return TrialAccount(
                "Infeasible",
                ["It needs more memory than there is, or breaks a constraint of the job. The search avoids its like."],
                ["If many trials end so: give each rank more memory, take smaller batches, or loosen the constraint."],
            )
        case FailureReason.OUT_OF_MEMORY:
            return TrialAccount(
                f"Ran out of memory{_after(trial)}",
                ["A rank asked for more memory than there is. The search avoids configs like it."],
                ["If many trials end so: take smaller batches or more accumulation_steps, or give each rank more."],
            )
        case FailureReason.ERROR:
            return TrialAccount(
                f"Ended by an error{_after(trial)}",
                [
                    "The code that it trains raised the error below, or ended its process. The same error in three "
                    "trials ends the job."
                ],
                ["Read the error and the last lines printed, and mend their cause.", *again],
            )
        case FailureReason.LOST:
            times = f" It was started {trial.runs} times." if trial.runs > 1 else ""
            return TrialAccount(
                f"Lost{_after(trial)}",
                [f"A rank of it, its machine, or the checkpoint that it was to begin from was gone.{times}"],
                ["Look at the machine: its memory, its system log, whether it was taken away.", *again],
            )
        case FailureReason.STORE_FAILED:
            return TrialAccount(
                f"Its checkpoints could not be stored{_after(trial)}",
                ["The store of checkpoints did not take or give one."],
                ["Look at the store: its space, its credentials, its address.", *again],
            )
    assert_never(reason)


def _diverged(trial: TrialFacts) -> TrialAccount:
    why = [
        "Its training loss was not finite or rose above the job's max_loss, or another metric was not finite, so it "
        "was ended in that very step. The search learns from it."
    ]
    advice = ["One such trial needs nothing: the search is to find where training breaks."]
    means = ["lower the upper end of lr", "lengthen the warm-up"]
    if not trial.clips_gradients:
        means.append("set gradient_clip_norm")
    if trial.is_low_precision:
        means.append("train in float32")
    advice.append(f"If many diverge: {', '.join(means[:-1])} or {means[-1]}.")
    return TrialAccount(f"Diverged{_after(trial)}", why, advice)


def _after(trial: TrialFacts) -> str:
    """The end comes somewhere after the last measurement, e.g. in the step that the detail names."""
    return f" after its measurement at step {trial.step}" if trial.step else " before its first measurement"


def _started_again(trial: TrialFacts) -> str:
    return f"It was started {trial.runs} times, and goes on from its last checkpoint each time."


def _count(count: int) -> str:
    return "none was" if count == 0 else f"{count} was" if count == 1 else f"{count} were"
