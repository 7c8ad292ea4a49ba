"""What a job tries next: its phases, interleaved by share, each with its own sampler and pruner."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from fractions import Fraction

from search_spaces import Scalar, SearchSpace
from service.domain import Direction, FailureReason, Phase, TrialState
from service.scheduler.policy import Ask, Decision, Done, Resume, Start, TrialHistory, Wait
from service.scheduler.pruner import NoPruner, Pruner
from service.scheduler.study import Outcome, Sampler, SamplerName, make_sampler


@dataclass(frozen=True, slots=True)
class PhasePlan:
    """One phase of a job: what it searches and how many trials it gets."""

    phase: Phase
    space: SearchSpace
    num_trials: int
    sampler: SamplerName = "tpe"
    pinned: tuple[Mapping[str, Scalar], ...] = ()
    """Assignments tried first, after the defaults of the space's branches."""


class _Status(Enum):
    WAITING = auto()
    """Interrupted; comes out of `ask` before anything new."""
    RUNNING = auto()
    PAUSED = auto()
    """By the pruner; comes out of `ask` when nothing new is left to start."""
    ENDED = auto()


@dataclass(slots=True)
class _Trial:
    phase: Phase
    parameters: Mapping[str, Scalar]
    status: _Status
    curve: list[tuple[int, float]] = field(default_factory=list)


@dataclass(slots=True)
class _PhaseRun:
    plan: PhasePlan
    pinned: tuple[dict[str, Scalar], ...]
    sampler: Sampler
    pruner: Pruner
    num_started: int = 0

    @property
    def has_trials_left(self) -> bool:
        return self.num_started < self.plan.num_trials


class JobPolicy:
    """The policy of a whole job: implements `service.scheduler.policy.Policy`.

    The next trial goes to the phase with the smallest share of its trials started; ties go to the phase named first.
    Each phase first tries the defaults of its space's branches, then its pinned assignments, then what its sampler
    suggests. Every trial counts, however it ends, so a phase ends with exactly the trials it was allotted.
    """

    def __init__(
        self,
        plans: Sequence[PhasePlan],
        *,
        direction: Direction,
        seed: int,
        pruner: Callable[[], Pruner] = NoPruner,
    ) -> None:
        """Prepares a job with these phases.

        Args:
            plans: the phases, the search first.
            direction: in which the objective is better.
            seed: makes all suggestions reproducible.
            pruner: makes the pruner of one phase; phases are never compared with each other.

        Raises:
            ValueError: a phase appears twice or has a negative number of trials.
            SpaceError: a pinned assignment does not fit its space.
        """
        self._phases: dict[Phase, _PhaseRun] = {}
        for plan in plans:
            if plan.phase in self._phases:
                raise ValueError(f"phase {plan.phase} appears twice")
            if plan.num_trials < 0:
                raise ValueError(f"num_trials of phase {plan.phase} must be >= 0, got {plan.num_trials}")
            sampler = make_sampler(
                plan.sampler, plan.space, direction=direction, num_trials=plan.num_trials, seed=f"{seed}/{plan.phase}"
            )
            pinned = (*plan.space.branch_defaults(), *map(plan.space.check, plan.pinned))
            self._phases[plan.phase] = _PhaseRun(plan, pinned, sampler, pruner())
        self._trials: dict[int, _Trial] = {}
        self._waiting: deque[int] = deque()
        self._paused: deque[int] = deque()
        self._next_number = 0

    @property
    def num_unfinished(self) -> int:
        """Trials that are still to end, those not yet started included."""
        not_started = sum(max(0, run.plan.num_trials - run.num_started) for run in self._phases.values())
        return not_started + sum(trial.status is not _Status.ENDED for trial in self._trials.values())

    def ask(self) -> Ask:
        """The next thing to do. `Start` and `Resume` make the trial running until it is told."""
        if self._waiting:
            return self._resume(self._waiting.popleft())
        startable = [run for run in self._phases.values() if run.has_trials_left]
        if startable:
            # `min` keeps the first of equals.
            return self._start(min(startable, key=lambda run: Fraction(run.num_started, run.plan.num_trials)))
        if self._paused:
            return self._resume(self._paused.popleft())
        return Wait() if self.num_unfinished else Done()

    def report(self, number: int, step: int, value: float) -> Decision:
        """Takes in the objective of a running trial at one step; not finite is allowed.

        Repeating a step, as a resumed trial does, changes nothing and gives `CONTINUE`.

        Raises:
            ValueError: the trial is not running.
        """
        trial = self._unfinished(number)
        if trial.status is not _Status.RUNNING:
            raise ValueError(f"trial {number} is {trial.status.name.lower()}, not running: cannot report step {step}")
        if trial.curve and step <= trial.curve[-1][0]:
            return Decision.CONTINUE
        trial.curve.append((step, value))
        decision = self._phases[trial.phase].pruner.report(number, step, value)
        if decision is Decision.PAUSE:
            trial.status = _Status.PAUSED
            self._paused.append(number)
        return decision

    def tell(
        self, number: int, state: TrialState, value: float | None = None, reason: FailureReason | None = None
    ) -> None:
        """Takes in how a trial ended, or with state `queued` that it was interrupted and must be resumed.

        Raises:
            ValueError: the trial is unknown or has ended before, or the state is `running`.
        """
        trial = self._unfinished(number)
        if state is TrialState.RUNNING:
            raise ValueError(f"trial {number}: cannot be told as running")
        for queue in (self._waiting, self._paused):
            if number in queue:
                queue.remove(number)
        if state is TrialState.QUEUED:
            trial.status = _Status.WAITING
            self._waiting.append(number)
            return
        trial.status = _Status.ENDED
        self._phases[trial.phase].sampler.finish(number, Outcome(state, reason, value, trial.curve))

    def restore(self, history: Sequence[TrialHistory]) -> None:
        """Takes in everything stored of a job; once, before anything is asked.

        Ended trials are told; all others come out of `ask` first, in the order of their numbers.

        Raises:
            ValueError: trials are known already, a number appears twice, or a phase is not among the plans.
            SpaceError: a trial's parameters do not fit the space of its phase.
        """
        if self._trials:
            raise ValueError(f"cannot restore: {len(self._trials)} trials are known already")
        for past in sorted(history, key=lambda past: past.number):
            if past.number in self._trials:
                raise ValueError(f"trial {past.number} appears twice in the history")
            if past.phase not in self._phases:
                raise ValueError(f"trial {past.number} belongs to phase {past.phase}, which the job does not have")
            run = self._phases[past.phase]
            run.num_started += 1
            parameters = run.plan.space.check(past.parameters)
            trial = _Trial(past.phase, parameters, _Status.WAITING)
            self._trials[past.number] = trial
            run.sampler.begin(past.number, parameters)
            for step, value in past.curve:
                if not trial.curve or step > trial.curve[-1][0]:
                    trial.curve.append((step, value))
                    run.pruner.report(past.number, step, value)
            if past.state.is_final:
                trial.status = _Status.ENDED
                run.sampler.finish(past.number, Outcome(past.state, past.reason, past.value, trial.curve))
            else:
                self._waiting.append(past.number)
        self._next_number = max(self._trials, default=-1) + 1

    def _start(self, run: _PhaseRun) -> Start:
        number = self._next_number
        self._next_number += 1
        if run.num_started < len(run.pinned):
            parameters = run.pinned[run.num_started]
            run.sampler.begin(number, parameters)
        else:
            parameters = run.sampler.suggest(number)
        run.num_started += 1
        self._trials[number] = _Trial(run.plan.phase, parameters, _Status.RUNNING)
        return Start(number, run.plan.phase, dict(parameters))

    def _resume(self, number: int) -> Resume:
        trial = self._trials[number]
        trial.status = _Status.RUNNING
        return Resume(number, trial.phase, dict(trial.parameters))

    def _unfinished(self, number: int) -> _Trial:
        if number not in self._trials:
            raise ValueError(f"unknown trial {number}")
        trial = self._trials[number]
        if trial.status is _Status.ENDED:
            raise ValueError(f"trial {number} has already ended")
        return trial
