"""The policy of a job: its sides, interleaved by share, each with its own search."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from fractions import Fraction

from search_spaces import Scalar
from service.domain import Direction, FailureReason, Phase, Side, TrialState
from service.scheduler.policy.confirmation import Confirmation
from service.scheduler.policy.protocol import (
    Ask,
    Decision,
    Done,
    Fork,
    GiveUp,
    Repeats,
    Resume,
    Start,
    TrialHistory,
    Wait,
)
from service.scheduler.policy.searching.phase_search import Drop, GoOn, New, TrialOutcome
from service.scheduler.policy.side_times import SideTimes
from service.scheduler.policy.sides import SidePlan, SideRun


class _Status(Enum):
    WAITING = auto()
    """Interrupted; `ask` returns it before anything new."""
    RUNNING = auto()
    PAUSED = auto()
    """Paused by the search; `ask` returns it when the search chooses to continue it, or to be given up at the side's
    end."""
    ENDED = auto()


@dataclass(slots=True)
class _PolicyTrial:
    side: Side
    """The side of the trial; of a confirmation trial, that of the config that it repeats."""
    parameters: Mapping[str, Scalar]
    status: _Status
    curve: list[tuple[int, float]] = field(default_factory=list)
    spared: bool = False
    """True if only its end stops it."""
    fork: Fork | None = None
    repeats: Repeats | None = None
    """The config that it repeats; only in the confirmation phase."""


class JobPolicy:
    """The policy of a whole job: implements `service.scheduler.policy.protocol.Policy`.

    The side that has started the smallest share of its trials has the next turn; if the job's time is limited, the side
    that has used the smallest share of its time. Ties go to the side named first. Each side first tries the defaults of
    its space's branches, then its pinned assignments, and then follows its search, which starts a new trial, continues
    a paused one, or gives one up. A side is over when it may start no more, none of its trials runs and its search
    chooses nothing. Its paused trials are then given up, except that the best ones continue while the confirmation has
    too few configs of that side. When all sides are over, the best trials are repeated as the confirmation says.
    """

    def __init__(
        self, plans: Sequence[SidePlan], *, confirmation: Confirmation | None = None, by_time: bool = False
    ) -> None:
        """Prepares a job with these sides, the search first.

        Args:
            plans: the plan of the search, and of each baseline.
            confirmation: None: there is none.
            by_time: whether the sides share training time instead of trials, in proportion to their `num_trials`. A
                side that has begun all of its trials leaves the rest of the time to the others.

        Raises:
            ValueError: a side appears twice or has a negative number of trials.
            SpaceError: a pinned assignment does not fit its space.
        """
        self._sides: dict[Side, SideRun] = {}
        for plan in plans:
            if plan.side in self._sides:
                raise ValueError(f"side {plan.side!r} appears twice")
            if plan.num_trials < 0:
                raise ValueError(f"num_trials of side {plan.side!r} must be >= 0, got {plan.num_trials}")
            pinned: list[dict[str, Scalar]] = []
            for values in (*plan.space.branch_defaults(), *map(plan.space.check, plan.pinned)):
                if values not in pinned:
                    pinned.append(values)
            self._sides[plan.side] = SideRun(plan, tuple(pinned), plan.search())
        self._confirmation = confirmation
        self._times = SideTimes({side: run.plan.num_trials for side, run in self._sides.items()})
        self._by_time = by_time
        self._num_confirming = 0
        self._trials: dict[int, _PolicyTrial] = {}
        self._waiting: deque[int] = deque()
        self._next_number = 0
        self._is_closed = False

    def close(self) -> None:
        """Stops starting trials: the job's time left is for continuing the existing ones."""
        self._is_closed = True

    @property
    def is_done(self) -> bool:
        """True if nothing is left to do, judged without asking the searches."""
        if any(self._may_start(run) or run.num_running or run.paused for run in self._sides.values()):
            return False
        return not self._num_confirming and not self._to_confirm()

    @property
    def num_interrupted(self) -> int:
        """The number of trials that `ask` returns before anything else: they had begun, and are neither paused nor
        over."""
        return len(self._waiting)

    def ask(self) -> Ask:
        """The next thing to do. `Start` and `Resume` make the trial running until it is told."""
        if self._waiting:
            return self._resume(self._waiting.popleft())
        # `sorted` keeps the order of equals.
        for run in sorted(self._sides.values(), key=self._had):
            chosen = self._choose(run)
            if chosen is not None:
                return chosen
        over = [run for run in self._sides.values() if not run.num_running]
        for run in over:
            if run.paused and self._lacks_candidates(run):
                return self._finish_best(run)
            if run.paused:
                return GiveUp(next(iter(run.paused)))
        if len(over) < len(self._sides):
            return Wait()
        for repeats in self._to_confirm():
            return self._confirm(repeats)
        if self._num_confirming:
            return Wait()
        return Done(is_early=self._is_closed and any(run.has_trials_left for run in self._sides.values()))

    def report(self, number: int, step: int, value: float, *, seconds: float = 0.0) -> Decision:
        """Records the first objective of a running trial at one step; it need not be finite.

        Repeating a step, as a resumed trial does, changes nothing and gives `CONTINUE`.

        Args:
            seconds: time that it has trained up to there.

        Raises:
            ValueError: the trial is not running.
        """
        trial = self._unfinished(number)
        if trial.status is not _Status.RUNNING:
            raise ValueError(f"trial {number} is {trial.status.name.lower()}, not running: cannot report step {step}")
        self._times.measured(number, seconds)
        if trial.curve and step <= trial.curve[-1][0]:
            return Decision.CONTINUE
        trial.curve.append((step, value))
        if trial.repeats is not None:
            return Decision.CONTINUE
        search = self._sides[trial.side].search
        decision = search.report(number, step, value)
        if trial.spared and decision is not Decision.CONTINUE:
            search.interrupt(number)  # without this, it would stay stopped or paused
            return Decision.CONTINUE
        if decision is Decision.PAUSE:
            self._pause(number, trial)
        return decision

    def tell(
        self, number: int, state: TrialState, values: Sequence[float] = (), reason: FailureReason | None = None
    ) -> None:
        """Records how a trial ended, or with state `queued` that it was interrupted and must be resumed.

        Args:
            values: the values of the job's objectives, in its order, if the trial completed.

        Raises:
            ValueError: the trial is unknown or has ended before, or the state is `running`.
        """
        trial = self._unfinished(number)
        if state is TrialState.RUNNING:
            raise ValueError(f"trial {number}: cannot be told as running")
        run = None if trial.repeats is not None else self._sides[trial.side]  # None: it confirms
        if run is not None and trial.status is _Status.PAUSED:
            del run.paused[number]
            run.num_running += 1
        elif trial.status is _Status.WAITING:
            self._waiting.remove(number)
        self._times.stop(number)
        if state is TrialState.QUEUED:
            trial.status = _Status.WAITING
            self._waiting.append(number)
            if run is not None:
                run.search.interrupt(number)
            return
        trial.status = _Status.ENDED
        if run is None:
            self._num_confirming -= 1
            assert self._confirmation is not None
            assert trial.repeats is not None
            self._confirmation.end(trial.repeats, state, values[0] if values else None)
            return
        run.num_running -= 1
        if state is not TrialState.CANCELLED:
            run.tried.add(number)
        if state is TrialState.COMPLETED and values:
            run.completed(number, tuple(values))
        run.search.finish(number, TrialOutcome(state, reason, tuple(values), trial.curve))
        if self._confirmation is not None and state is TrialState.COMPLETED:
            self._confirmation.add(number, trial.side, trial.parameters, values[0] if values else None)

    def restore(self, history: Sequence[TrialHistory]) -> None:
        """Restores everything that is stored of a job; once, before the first `ask`.

        Ended trials are recorded. `ask` first returns interrupted and proposed trials, in the order of their numbers,
        and paused ones when the search chooses them.

        Raises:
            ValueError: trials are known already, a number appears twice, or a side is not among the plans.
            SpaceError: a trial's parameters do not fit the space of its side.
        """
        if self._trials:
            raise ValueError(f"cannot restore: {len(self._trials)} trials are known already")
        for past in sorted(history, key=lambda past: past.number):
            if past.number in self._trials:
                raise ValueError(f"trial {past.number} appears twice in the history")
            if past.repeats is not None:
                self._restore_confirming(past, past.repeats)
                continue
            if past.side not in self._sides:
                raise ValueError(f"trial {past.number} belongs to side {past.side!r}, which the job does not have")
            run = self._sides[past.side]
            parameters = run.plan.space.check(past.parameters, beyond_bounds=True)  # a user may have proposed it
            trial = self._begin(run, past.number, parameters, past.fork)
            trial.spared = past.spared
            run.num_proposed += past.proposed
            for seconds in past.seconds:
                self._times.measured(past.number, seconds)
            run.search.begin(past.number, parameters, fork=past.fork)
            decision = Decision.CONTINUE
            for step, value in past.curve:
                if not trial.curve or step > trial.curve[-1][0]:
                    trial.curve.append((step, value))
                    decision = run.search.report(past.number, step, value)
            if past.state.is_final:
                self.tell(past.number, past.state, past.values, past.reason)
            elif decision is Decision.PAUSE and not past.spared:
                self._pause(past.number, trial)
            else:
                self.tell(past.number, TrialState.QUEUED)
        self._next_number = max(self._trials, default=-1) + 1

    def _lacks_candidates(self, run: SideRun) -> bool:
        """True if a side would enter the confirmation with fewer configs than the other may have."""
        return self._confirmation is not None and self._confirmation.num_lacking(run.plan.side) > 0

    def _finish_best(self, run: SideRun) -> Resume:
        """Continues the paused trial that got farthest to its end; if there are several, the best one."""
        sign = 1.0 if run.plan.directions[0] is Direction.MINIMIZE else -1.0

        def place(number: int) -> tuple[int, float]:
            step, value = self._trials[number].curve[-1]
            return -step, sign * value if math.isfinite(value) else math.inf

        number = min(run.paused, key=place)
        del run.paused[number]
        run.num_running += 1
        self._trials[number].spared = True
        run.search.interrupt(number)
        return self._resume(number)

    def _to_confirm(self) -> list[Repeats]:
        return [] if self._confirmation is None else self._confirmation.left()

    def _confirm(self, repeats: Repeats) -> Start:
        number = self._next_number
        self._next_number += 1
        trial = self._begin_confirming(number, repeats)
        return Start(number, trial.side, dict(trial.parameters), repeats=repeats)

    def _begin_confirming(self, number: int, repeats: Repeats) -> _PolicyTrial:
        if self._confirmation is None:
            raise ValueError(f"trial {number} belongs to phase {Phase.CONFIRMATION}, which the job does not have")
        if repeats.number not in self._trials:
            raise ValueError(f"trial {number} repeats trial {repeats.number}, which is unknown")
        self._confirmation.begin(repeats)
        like = self._trials[repeats.number]
        trial = self._trials[number] = _PolicyTrial(like.side, like.parameters, _Status.RUNNING, repeats=repeats)
        self._num_confirming += 1
        return trial

    def _restore_confirming(self, past: TrialHistory, repeats: Repeats) -> None:
        trial = self._begin_confirming(past.number, repeats)
        trial.curve.extend(past.curve)
        if past.state.is_final:
            self.tell(past.number, past.state, past.values, past.reason)
        else:
            self.tell(past.number, TrialState.QUEUED)

    def _choose(self, run: SideRun) -> Start | Resume | GiveUp | None:
        number = self._next_number
        fork: Fork | None = None
        num_own = run.num_started - run.num_proposed
        if self._may_start(run) and num_own < len(run.pinned):
            parameters = run.pinned[num_own]
            run.search.begin(number, parameters)
        else:
            match run.search.choose(number, may_start=self._may_start(run)):
                case New() as new:
                    parameters, fork = dict(new.parameters), new.fork
                case GoOn(number=paused):
                    del run.paused[paused]
                    run.num_running += 1
                    return self._resume(paused)
                case Drop(number=paused, why=why):
                    return GiveUp(paused, why)
                case None:
                    return None
        self._next_number += 1
        self._begin(run, number, parameters, fork)
        return Start(number, run.plan.side, dict(parameters), run.search.until(number), fork=fork)

    def _had(self, run: SideRun) -> tuple[float | Fraction, Fraction]:
        """The part of its share that a side has used: the smallest goes first."""
        return self._times.share(run.plan.side) if self._by_time else run.share, run.share

    def _may_start(self, run: SideRun) -> bool:
        return run.has_trials_left and not self._is_closed

    def _begin(self, run: SideRun, number: int, parameters: Mapping[str, Scalar], fork: Fork | None) -> _PolicyTrial:
        trial = self._trials[number] = _PolicyTrial(run.plan.side, parameters, _Status.RUNNING, fork=fork)
        self._times.begin(number, run.plan.side, is_fork=fork is not None)
        run.num_started += 1
        run.num_running += 1
        return trial

    def _pause(self, number: int, trial: _PolicyTrial) -> None:
        run = self._sides[trial.side]
        trial.status = _Status.PAUSED
        self._times.stop(number)
        run.paused[number] = None
        run.tried.add(number)
        run.num_running -= 1

    def _resume(self, number: int) -> Resume:
        trial = self._trials[number]
        trial.status = _Status.RUNNING
        if trial.repeats is None:
            self._times.run(number)
        to_its_end = trial.spared or trial.repeats is not None
        until = None if to_its_end else self._sides[trial.side].search.until(number)
        return Resume(number, trial.side, dict(trial.parameters), until, trial.fork)

    def _unfinished(self, number: int) -> _PolicyTrial:
        if number not in self._trials:
            raise ValueError(f"unknown trial {number}")
        trial = self._trials[number]
        if trial.status is _Status.ENDED:
            raise ValueError(f"trial {number} has already ended")
        return trial
