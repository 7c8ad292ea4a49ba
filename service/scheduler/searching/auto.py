"""The `auto` search: partial curves, a model of where they end, and one price for all work.

**What it does.** Every trial starts with a short run, to the first rung (15% of its own schedule), and is paused there.
From then on the policy decides, each time a worker is free, between two uses of it:

- *go on* with a paused trial, to the next rung (40%) or the end. Worth: the expected improvement of its final value,
  divided by what is left of its training;
- *start* a new trial. Worth: what its first rung is expected to add to the best final value in sight, divided by the
  rung's cost. An early value that tells little of the end (the model knows how little) adds little.

The larger worth wins. So nothing says in advance how many trials are started for each one finished: where early values
are reliable there are many starts and few completions, as in successive halving; where they are not, nearly all goes
into completions, as in Bayesian optimization on full trainings. Bounds on the share of completions only keep a model
that is wrong about itself from starving either side.

**Why it should carry over to other curves.** It assumes no shape of a curve. All trials are compared at equal fractions
of their own schedule, and `curve_model` learns how the gap between early and final values depends on the config, with a
Gaussian process as for the final values themselves: if large learning rates look bad until the schedule has decayed,
the first few completions show it. The constants were chosen on random synthetic tasks (`tests.benchmarks.
curve_families`) and small networks on generated data sets, not on the tables that the benchmark ships. What is known to
be fragile has a fallback that needs no model: the space's defaults and a Sobol design come first, the share of
completions is bounded, a share of all starts is uniform, and the first completions go by the expected value alone
(expected improvement would choose uncertain configs over good ones while nothing is finished).

**Divergence is information.** A diverged trial, or one that did not fit into memory, is the worst final value seen: the
model learns the cliff. Losses of others on the way there are drawn in to a few robust deviations.

**Several workers.** A running trial is believed to reach what the model expects of it (kriging believer), so that
workers spread out, and its work counts as done in the share of completions. Nothing ever waits for another trial.

**Twins.** Two trials with equal values up to the first rung are the same training (a parameter without effect, a
rounded one): when one is finished, the other is known too, and is not trained to its end. How far apart twins lie is
the resolution of the objective; new trials keep that distance from known ones. Without twins it is 0.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

import numpy as np
from scipy.special import ndtr
from scipy.stats import qmc

from search_spaces import Scalar, SearchSpace
from service.domain import Direction, FailureReason, Phase, TrialState
from service.scheduler.policy import Ask, Decision, Resume, Start, TrialHistory
from service.scheduler.searching.acquisition import comparable, log_expected_improvement, propose, standardised
from service.scheduler.searching.curve_model import CurveModel, Posterior, Rows
from service.scheduler.searching.encoding import Array, Encoding
from service.scheduler.searching.twins import Beginning, resolution, tells_twins
from service.scheduler.study import TEACHING_REASONS

RUNGS = (0.15, 0.4)
"""Shares of the training at which a trial is paused. A first rung at 5% or 10% cost less and told too little."""
NUM_DESIGN = 8
"""Trials before the model is asked: the defaults, then a Sobol design."""
UNIFORM_SHARE = 0.2
"""Of the starts after those."""
COMPLETION_BIAS = 0.5
"""A start must be worth 1 / this more than a completion: its worth counts on a completion that is still to be paid."""
COMPLETION_SHARE = (0.3, 0.8)
"""Bounds of the share of all work that goes beyond the first rung."""
NUM_BY_MEAN = 2
"""Completions chosen by the expected final value."""
MIN_CHANCE = 0.05
"""Of improving, below which nothing is gone on with, even for the share's sake."""
MAX_PAUSED = 150
"""Beyond so many paused trials the model forgets unpromising ones: a decision's cost stays bounded."""
REFIT_GROWTH = 1.2


class _Status(Enum):
    WAITING = auto()
    """Interrupted; comes out of `ask` before anything else."""
    RUNNING = auto()
    PAUSED = auto()
    ENDED = auto()


@dataclass(slots=True)
class _Trial:
    number: int
    parameters: Mapping[str, Scalar]
    vector: Array
    goal: int
    """The step at which it is paused next, or its last."""
    status: _Status = _Status.RUNNING
    curve: list[tuple[int, float]] = field(default_factory=list)
    final: float | None = None
    failed: bool = False
    """Its parameters made it fail."""
    forgotten: bool = False
    """It teaches nothing (an error ended it early), or nothing new."""
    mean: float = 0.0
    """The final value last expected of it, on the model's scale."""

    @property
    def reached(self) -> int:
        return self.curve[-1][0] if self.curve else 0


@dataclass(frozen=True, slots=True)
class _View:
    """What the model says at the moment."""

    trials: list[_Trial]
    """Those it knows, in the order of the arrays."""
    posterior: Posterior
    vectors: Array
    mean: Array
    deviation: Array
    """(n,) of final values."""
    best: float | None
    """Best final value of a finished trial."""
    twins: frozenset[int]
    """Numbers of the paused trials whose ends are known."""

    @property
    def incumbent(self) -> float:
        """What is to be improved on: before anything is finished, what an average config gives."""
        return float(np.median(self.mean)) if self.best is None else self.best


class AutoSearch:
    """One phase searched by the policy of this module: implements `service.scheduler.policy.Policy`.

    A suggestion follows from the seed, the trial's number and what is known, up to the model's fit, which starts from
    the fit before.
    """

    def __init__(
        self,
        space: SearchSpace,
        *,
        direction: Direction,
        max_steps: int,
        measure_every: int = 1,
        seed: int = 0,
        phase: Phase = Phase.SEARCH,
    ) -> None:
        """Prepares a search.

        Args:
            space: what is searched.
            direction: in which the objective is better.
            max_steps: steps of a whole trial.
            measure_every: steps between measurements; rungs are put on measurements, the first not on the very first.
            seed: makes suggestions reproducible.
            phase: that of the trials.

        Raises:
            ValueError: a number is not positive.
        """
        if max_steps < 1 or measure_every < 1:
            raise ValueError(f"max_steps and measure_every must be >= 1, got {max_steps} and {measure_every}")
        self._space, self._encoding, self._model = space, Encoding(space), CurveModel(Encoding(space))
        self._is_minimised = direction is Direction.MINIMIZE
        self._max_steps = max_steps
        units = max_steps / measure_every
        rungs = sorted({max(2, round(share * units)) * measure_every for share in RUNGS})
        self._goals = [*(rung for rung in rungs if rung < max_steps), max_steps]
        self._seed, self._phase = seed, phase
        design = qmc.Sobol(self._encoding.num_dimensions, rng=np.random.default_rng(seed)).random(NUM_DESIGN)
        self._design = [self._encoding.encode(space.defaults()), *self._encoding.snap(design)][:NUM_DESIGN]
        self._trials: dict[int, _Trial] = {}
        self._waiting: deque[int] = deque()
        self._num_fitted = 0

    def ask(self) -> Ask:
        """The next thing to do; there always is one."""
        if self._waiting:
            return self._resume(self._trials[self._waiting.popleft()])
        number = len(self._trials)
        if number < NUM_DESIGN:
            return self._start(self._design[number])
        rng = np.random.default_rng([self._seed, number, sum(trial.reached for trial in self._trials.values())])
        view = self._view()
        if view is None:
            return self._start(rng.random(self._encoding.num_dimensions))
        target = float(max(view.incumbent, view.mean.max())) if view.best is not None else float(view.mean.max())
        beginnings = [self._beginning(trial) if self._at_first_rung(trial) else None for trial in view.trials]
        proposal = propose(
            view.posterior,
            self._encoding,
            known=view.vectors,
            means=view.mean,
            incumbent=target,
            resolution=resolution(beginnings, view.vectors, view.posterior),
            rng=rng,
        )
        going_on = self._worth_going_on(view, proposal)
        if going_on is not None:
            going_on.goal = next(goal for goal in self._goals if goal > going_on.reached)
            return self._resume(going_on)
        if rng.random() < UNIFORM_SHARE:
            proposal = rng.random(self._encoding.num_dimensions)
        return self._start(proposal)

    def report(self, number: int, step: int, value: float) -> Decision:
        """Continue, or pause at a rung.

        Raises:
            ValueError: the trial is not running.
        """
        trial = self._trials.get(number)
        if trial is None or trial.status is not _Status.RUNNING:
            raise ValueError(f"trial {number} is not running: cannot report step {step}")
        if step <= trial.reached:
            return Decision.CONTINUE
        trial.curve.append((step, value))
        if trial.goal <= step < self._max_steps:
            trial.status = _Status.PAUSED
            return Decision.PAUSE
        return Decision.CONTINUE

    def tell(
        self, number: int, state: TrialState, value: float | None = None, reason: FailureReason | None = None
    ) -> None:
        """Takes in how a trial ended, or with state `queued` that it was interrupted and must be resumed.

        Raises:
            ValueError: the trial is unknown or has ended before.
        """
        trial = self._trials.get(number)
        if trial is None or trial.status is _Status.ENDED:
            raise ValueError(f"trial {number} is unknown or has ended already")
        if state is TrialState.QUEUED:
            trial.status = _Status.WAITING
            self._waiting.append(number)
            return
        trial.status = _Status.ENDED
        if state is TrialState.COMPLETED and value is not None and math.isfinite(value):
            trial.final = value
        else:
            trial.failed = state is TrialState.COMPLETED or reason in TEACHING_REASONS
            trial.forgotten = not trial.failed and self._at_first_rung(trial) is None

    def restore(self, history: Sequence[TrialHistory]) -> None:
        """Takes in everything stored; a trial that rests at a rung counts as paused there.

        Raises:
            ValueError: trials are known already.
            SpaceError: a trial's parameters do not fit the space.
        """
        if self._trials:
            raise ValueError(f"cannot restore: {len(self._trials)} trials are known already")
        for past in sorted(history, key=lambda past: past.number):
            parameters = self._space.check(past.parameters)
            trial = _Trial(past.number, parameters, self._encoding.encode(parameters), self._goals[0])
            self._trials[past.number] = trial
            for step, value in past.curve:
                if step > trial.reached:
                    trial.curve.append((step, value))
            trial.goal = next((goal for goal in self._goals if goal > trial.reached), self._max_steps)
            if past.state.is_final:
                self.tell(past.number, past.state, past.value, past.reason)
            elif trial.reached in self._goals[:-1]:
                trial.status = _Status.PAUSED
            else:
                self.tell(past.number, TrialState.QUEUED)

    def _start(self, vector: Array) -> Start:
        number = len(self._trials)
        parameters = self._encoding.decode(self._encoding.snap(vector[None])[0])
        # Encoded anew: floats have been rounded.
        self._trials[number] = _Trial(number, parameters, self._encoding.encode(parameters), self._goals[0])
        return Start(number, self._phase, dict(parameters))

    def _resume(self, trial: _Trial) -> Resume:
        trial.status = _Status.RUNNING
        return Resume(trial.number, self._phase, dict(trial.parameters))

    def _worth_going_on(self, view: _View, proposal: Array) -> _Trial | None:
        """The paused trial that is worth more than starting the proposed one; None: there is none."""
        paused = np.array(
            [
                index
                for index, trial in enumerate(view.trials)
                if trial.status is _Status.PAUSED and trial.number not in view.twins
            ],
            dtype=int,
        )
        if not len(paused):
            return None
        mean, deviation, incumbent = view.mean[paused], view.deviation[paused], view.incumbent
        left = np.array([1 - view.trials[index].reached / self._max_steps for index in paused])
        worth = np.exp(log_expected_improvement(mean, deviation, incumbent)) / left
        chosen = int(mean.argmax() if self._num_completions() < NUM_BY_MEAN else worth.argmax())
        in_sight = max(incumbent, float(mean.max()))
        expected, _ = view.posterior.final(proposal[None])
        shift = np.array([view.posterior.shift_by_rung(proposal)])
        of_start = float(np.exp(log_expected_improvement(expected, shift, in_sight)[0]))
        of_start /= self._goals[0] / self._max_steps
        is_worth_more = worth[chosen] > COMPLETION_BIAS * of_start
        share, (least, most) = self._completion_share(), COMPLETION_SHARE
        has_chance = ndtr((mean[chosen] - incumbent) / deviation[chosen]) > MIN_CHANCE
        if (is_worth_more and share < most) or (has_chance and share < least):
            return view.trials[int(paused[chosen])]
        return None

    def _num_completions(self) -> int:
        """Trials that went, or go, beyond the first rung, without those that failed there."""
        return sum(
            trial.goal > self._goals[0] and (trial.status is not _Status.ENDED or trial.final is not None)
            for trial in self._trials.values()
        )

    def _completion_share(self) -> float:
        """Of all work that is done or under way, the share beyond the first rung."""
        first, beyond = 0, 0
        for trial in self._trials.values():
            is_under_way = trial.status in (_Status.RUNNING, _Status.WAITING)
            steps = trial.goal if is_under_way else trial.reached
            first += min(steps, self._goals[0])
            beyond += max(0, steps - self._goals[0])
        return beyond / max(1, first + beyond)

    def _at_first_rung(self, trial: _Trial) -> tuple[int, float] | None:
        """The measurement at the first rung, if it got there."""
        return next((point for point in trial.curve if self._goals[0] <= point[0] < self._max_steps), None)

    def _distance(self, step: int) -> float:
        """How far a step is from the end, as the model counts: 1 at the first rung."""
        if step >= self._max_steps:
            return 0.0
        return math.log(self._max_steps / step) / math.log(self._max_steps / self._goals[0])

    def _view(self) -> _View | None:
        """Fits the model to what is known; None: too little is."""
        self._forget()
        trials = [trial for trial in self._trials.values() if not trial.forgotten]
        ends, twins = self._known_ends(trials)
        points: list[tuple[int, float, float]] = []
        under_way: list[tuple[int, float]] = []
        for index, trial in enumerate(trials):
            early = self._at_first_rung(trial)
            if early is not None:
                points.append((index, self._distance(early[0]), early[1]))
            if trial.number in ends:
                points.append((index, 0.0, ends[trial.number]))
                continue
            if early is not None and early[0] < trial.reached < self._max_steps:
                step, value = trial.curve[-1]
                points.append((index, self._distance(step), value))
            if trial.status in (_Status.RUNNING, _Status.WAITING):
                under_way.append((index, self._distance(trial.goal)))
        if len(points) < 2:
            return None
        table = np.array(points)
        rows = Rows(
            table[:, 0].astype(np.int64),
            table[:, 1],
            standardised(comparable(table[:, 2], is_minimised=self._is_minimised)),
        )
        vectors = np.array([trial.vector for trial in trials])
        if len(points) >= REFIT_GROWTH * self._num_fitted:
            self._model.fit(vectors, rows)
            self._num_fitted = len(points)
        posterior = self._model.condition(vectors, rows)
        finished = [row for row, (index, d, _) in enumerate(points) if d == 0.0 and trials[index].final is not None]
        if under_way:
            indices, distances = np.array([i for i, _ in under_way]), np.array([d for _, d in under_way])
            believed = rows.extended(indices, distances, posterior.believed(indices, distances))
            posterior = self._model.condition(vectors, believed)
        mean, deviation = posterior.final_of_known()
        for trial, expected in zip(trials, mean, strict=True):
            trial.mean = float(expected)
        best = float(rows.target[finished].max()) if finished else None
        return _View(trials, posterior, vectors, mean, deviation, best, twins)

    def _known_ends(self, trials: Sequence[_Trial]) -> tuple[dict[int, float], frozenset[int]]:
        """By trial, the final value (NaN if its parameters made it fail), and which of them have it from a twin."""
        ends: dict[int, float] = {}
        by_beginning: dict[Beginning, float] = {}
        for trial in trials:
            if trial.failed:
                ends[trial.number] = math.nan
            elif trial.final is not None:
                ends[trial.number] = trial.final
                by_beginning.setdefault(self._beginning(trial), trial.final)
        twins = set()
        for trial in trials:
            beginning = self._beginning(trial)
            if trial.status is _Status.PAUSED and tells_twins(beginning) and beginning in by_beginning:
                ends[trial.number] = by_beginning[beginning]
                twins.add(trial.number)
        return ends, frozenset(twins)

    def _beginning(self, trial: _Trial) -> Beginning:
        return tuple(value for step, value in trial.curve if step <= self._goals[0])

    def _forget(self) -> None:
        """Leaves the least promising paused trials out of the model, but for some of them, once there are too many."""
        paused = [t for t in self._trials.values() if t.status is _Status.PAUSED and not t.forgotten]
        if len(paused) <= MAX_PAUSED:
            return
        paused.sort(key=lambda trial: -trial.mean)
        for trial in paused[MAX_PAUSED // 2 :: 2]:
            trial.forgotten = True
