"""The `auto` search: partial curves, a model of where they end, and one price for all work.

**What it does.** Every trial starts with a short run, to the first rung (15% of its own schedule), and is paused there.
It is measured there and twice before, even if its regular measurements are rare. From then on, each time a worker is
free, the policy decides between two uses of it:

- *go on* with a paused trial, to the next rung (40%) or the end. Its worth is the expected improvement of its final
  value, divided by the rest of its training;
- *start* a new trial. Its worth is the improvement of the best expected final value that its first rung promises,
  divided by the rung's cost. An early value that says little about the end (the model knows how little) adds little.

The larger worth wins. So the number of starts for each completion is not fixed in advance. If early values are reliable
there are many starts and few completions, as in successive halving; if not, nearly all work goes into completions, as
in Bayesian optimization on full trainings. Bounds on the share of completions only prevent a model that is wrong about
itself from starving either side.

**Why it should carry over to other curves.** It assumes no shape of a curve. All trials are compared at equal fractions
of their own schedule, and `curve_model` learns how the gap between early and final values depends on the config, with a
Gaussian process as for the final values themselves: if large learning rates look bad until the schedule has decayed,
the first few completions show it. The constants were chosen on random synthetic tasks
(`tests.benchmarks.search.curve_families`) and small networks on generated data sets, not on the tables that the
benchmark ships, except for `EXPECTED_ERROR`. Fragile parts have a fallback that needs no model: the space's defaults
and a Sobol design come first, the share of completions is bounded, a share of all starts is uniform, and the first
completions go by the expected value alone (expected improvement would choose uncertain configs over good ones while
nothing is finished).

**A curve's own slope is information.** Of two trials with equal early values, the one that still rises faster mostly
ends better. So early values are extrapolated for the model, part of the way along a straight line in the logarithm of
time (`trends`): a fifth of the way at first, because curves flatten, then as much as the finished trials kept of their
trends, and less if noise explains the different slopes. That needs three measurements up to the first rung, which every
paused trial has (`trainers.stopwatch`).

**Members are compared by their ends.** In a space that branches, such as the family's, one trial of each branch is
finished before a second one of any, as long as it has a chance: the distance of early values from the end differs
between members, and a member's first trial, with tuned defaults, is often among its best.

**About branches the model is too certain.** It learns from finished trials how far ends are from the predictions of
early values, and finished trials are the best of their branch. So in a space that branches, the worth of going on is
computed with additional errors: the errors that the model makes at a branch's finished trials when their ends are
hidden from it, and wide ones if few are finished (`modelled.branch_errors`).

**Divergence is information.** A diverged trial, or one that did not fit into memory, counts as the worst final value
seen, so the model learns the cliff. Extreme losses of other trials near it are limited to a few robust deviations.

**Several workers.** A running trial is assumed to reach the value that the model expects (kriging believer), so that
workers spread out, and its work counts as done in the share of completions. No trial ever waits for another one.

**The end.** When no more trials may be started, paused trials continue one after the other: always the one that most
probably becomes the best, as long as this is not improbable.

**Twins.** Two trials with equal values up to the first rung are the same training (a parameter without effect, a
rounded one): when one is finished, the other is known too, and is not trained to its end. How far apart twins lie is
the resolution of the objective; new trials keep that distance from known ones. Without twins it is 0.

**What is known before.** Good configs of similar models are tried first, and attract proposals to their neighbourhood
as long as measurements do not contradict them (`search_prior`). For every space it is known how fast results change
with the learning rate (`curve_model.KNOWN_LENGTHS`), and beside known configs with each parameter of an optimizer.

**Tried and left out**: "How good a policy is" in `service/INSIDE.md` lists what gained nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import numpy as np

from search_spaces import Scalar, SearchSpace
from service.domain import Direction, TrialState
from service.scheduler.policy.protocol import Decision, Fork
from service.scheduler.policy.searching.acquisition import log_expected_improvement, propose
from service.scheduler.policy.searching.curve_model import KNOWN_LENGTHS, CurveModel
from service.scheduler.policy.searching.encoding import Array, Encoding
from service.scheduler.policy.searching.equivalent_trials import Beginning, ends_of_twins, resolution
from service.scheduler.policy.searching.modelled import (
    ModelledTrial,
    ModelView,
    branch_errors,
    observed_points,
    rows_of,
)
from service.scheduler.policy.searching.phase_search import (
    TEACHING_REASONS,
    Choice,
    GoOn,
    New,
    SearchStatus,
    TrialOutcome,
)
from service.scheduler.policy.searching.rungs import Rungs
from service.scheduler.policy.searching.search_prior import LENGTHS_IN_TABLES, KnownConfig, SearchPrior
from service.scheduler.policy.searching.search_prior import NUM_DESIGN as NUM_DESIGN_WITH_PRIOR

NUM_DESIGN = 8
"""Trials before the model is asked: the defaults, then a Sobol design."""
UNIFORM_SHARE = 0.2
"""Share of the later starts that are drawn evenly from the whole space."""
COMPLETION_BIAS = 0.5
"""A start must be worth 1 / this more than a completion: its worth counts on a completion that is still to be paid."""
COMPLETION_SHARE = (0.3, 0.8)
"""Bounds of the share of all work that goes beyond the first rung."""
NUM_BY_MEAN = 2
"""Completions chosen by the expected final value."""
MIN_CHANCE = 0.05
"""Probability of improving on the best that a trial must exceed to be continued only to reach the share, or when no
more trials begin."""
MAX_KNOWN = 300
"""Most trials that the model knows: above it, it forgets unpromising ones, so the cost of a decision stays bounded."""
REFIT_GROWTH = 1.2
"""Factor by which the number of points must have grown since the last fit before the next one, by judgement: a fit
repeats many times the work of one decision."""
NUM_NEAR_KNOWN = 100
"""Candidates around known configs, if there are any."""


class AutoSearch:
    """One phase searched by the policy of this module: implements `phase_search.PhaseSearch`.

    A choice depends only on the seed and the known trials, except for the model's fit, which starts from the previous
    fit.
    """

    def __init__(
        self,
        space: SearchSpace,
        *,
        direction: Direction,
        max_steps: int,
        first_rung: int | None = None,
        pauses: bool = True,
        seed: int = 0,
        known: Sequence[KnownConfig] = (),
        lengths: Mapping[str, float] = LENGTHS_IN_TABLES,
    ) -> None:
        """Prepares a search.

        Args:
            space: what is searched.
            direction: in which the objective is better.
            max_steps: steps of a whole trial.
            first_rung: the step at which a trial is first paused; None: that of `PAUSE_SHARES`.
            pauses: False: every trial is trained to its end, and the model learns only from final values.
            seed: makes choices reproducible.
            known: configs that were good for models like this one, the nearest first.
            lengths: length scales in decades, by parameter, that its model expects if there are known configs.

        Raises:
            ValueError: the number of steps is not positive.
        """
        self._encoding = Encoding(space)
        self._is_minimised = direction is Direction.MINIMIZE
        self._rungs = Rungs(max_steps=max_steps, first=first_rung, pauses=pauses)
        self._seed = seed
        self._space = space
        self._num_branches = len(space.branch_defaults())
        self._prior = SearchPrior(known, space, self._encoding, lengths=lengths) if known else None
        self._is_contradicted = False
        self._model = CurveModel(self._encoding, self._prior.lengths if self._prior else KNOWN_LENGTHS)
        self._num_design = NUM_DESIGN if self._prior is None else NUM_DESIGN_WITH_PRIOR
        self._trials: dict[int, ModelledTrial] = {}
        self._num_fitted = 0
        self._nothing_left = False
        """No trial was worth continuing, and there is no new measurement since."""

    @cached_property
    def _design(self) -> list[Array]:
        """The first vectors, made on the first request: a job that continues has already begun them all."""
        points = self._encoding.sobol(NUM_DESIGN, seed=self._seed)
        return [self._encoding.encode(self._space.defaults()), *points][:NUM_DESIGN]

    def _next_of_design(self) -> Array:
        """The next initial vector: with a prior, its first config that was not tried, then alternately one near these
        configs and one of the design."""
        place = len(self._trials)
        if self._prior is None:
            return self._design[place]
        untried = (start for start in self._prior.starts if not self._is_tried(start))
        near = self._prior.drawn(1, np.random.default_rng([self._seed, place]))[0]
        return next(untried, near if place % 2 else self._design[place])

    def _bonus(self, view: ModelView) -> Callable[[Array], Array] | None:
        """The bonus that the prior adds to the score of a proposal; None: nothing."""
        if self._prior is None:
            return None
        expected, _ = view.posterior.final(self._prior.centres)
        weight = self._prior.weight(expected, view.mean, num_measured=len(view.trials))
        if weight == 0 and not self._is_contradicted:
            self._is_contradicted = True
            self._model, self._num_fitted = CurveModel(self._encoding, KNOWN_LENGTHS), 0
        prior = self._prior
        return None if weight == 0 else lambda vectors: weight * prior.log_density(vectors)

    def choose(self, number: int, *, may_start: bool) -> Choice:
        """A new trial or a paused one; if no new one may start, a paused one as long as it has a chance to be the
        best."""
        if not may_start:
            return self._go_on_at_last()
        if len(self._trials) < self._num_design:
            return self._new(number, self._next_of_design())
        work = sum(trial.reached for trial in self._trials.values())
        rng = np.random.default_rng([self._seed, len(self._trials), work])
        view = self._view()
        if view is None:
            return self._new(number, rng.random(self._encoding.num_dimensions))
        target = float(max(view.incumbent, view.mean.max())) if view.best is not None else float(view.mean.max())
        beginnings = [self._beginning(trial) if self._rungs.at_first(trial.curve) else None for trial in view.trials]
        proposal = propose(
            view.posterior,
            self._encoding,
            known=view.vectors,
            means=view.mean,
            incumbent=target,
            resolution=resolution(beginnings, view.vectors, view.posterior),
            is_tried=self._is_tried,
            rng=rng,
            bonus=self._bonus(view),
            others=None if self._prior is None else self._prior.drawn(NUM_NEAR_KNOWN, rng),
        )
        going_on = self._first_of_its_branch(view) or self._worth_going_on(view, proposal)
        if going_on is not None:
            return self._go_on(going_on)
        if rng.random() < UNIFORM_SHARE:
            proposal = rng.random(self._encoding.num_dimensions)
        return self._new(number, proposal)

    def begin(self, number: int, parameters: Mapping[str, Scalar], *, fork: Fork | None = None) -> None:
        self._nothing_left = False
        vector = self._encoding.encode(parameters)
        branch = tuple(vector[self._encoding.is_branching])
        self._trials[number] = ModelledTrial(number, self._encoding.decode(vector), vector, branch, self._rungs.first)

    def until(self, number: int) -> int | None:
        goal = self._trials[number].goal
        return goal if goal < self._rungs.end else None

    def report(self, number: int, step: int, value: float) -> Decision:
        """Continue, or pause at a rung."""
        trial = self._trials[number]
        trial.status = SearchStatus.RUNNING  # unchanged, or for a replayed trial, running again
        trial.goal = self._rungs.beyond(trial.reached)
        trial.curve.append((step, value))
        if not trial.early and self._rungs.first <= step < self._rungs.end:
            trial.early = self._rungs.until_first(trial.curve)
        if trial.goal <= step < self._rungs.end:
            self._nothing_left = False
            trial.status = SearchStatus.PAUSED
            return Decision.PAUSE
        return Decision.CONTINUE

    def interrupt(self, number: int) -> None:
        trial = self._trials[number]
        trial.status, trial.goal = SearchStatus.RUNNING, self._rungs.beyond(trial.reached)

    def finish(self, number: int, outcome: TrialOutcome) -> None:
        trial = self._trials[number]
        self._nothing_left = False
        trial.status = SearchStatus.ENDED
        if outcome.state is TrialState.COMPLETED and not outcome.is_worst:
            trial.final = outcome.values[0]
        else:
            trial.failed = outcome.state is TrialState.COMPLETED or outcome.reason in TEACHING_REASONS
            trial.forgotten = not trial.failed and self._rungs.at_first(trial.curve) is None

    def _is_tried(self, vector: Array) -> bool:
        """True if a trial has the config of a snapped vector, both with floats of few digits: those of a moved or a
        proposed config may have more."""
        rounded = self._encoding.decode(vector)
        return any(trial.rounded == rounded for trial in self._trials.values())

    def _new(self, number: int, vector: Array) -> New:
        parameters = self._encoding.decode(self._encoding.snap(vector[None])[0])
        self.begin(number, parameters)  # which encodes them again, because floats have been rounded
        return New(parameters)

    def _go_on(self, trial: ModelledTrial) -> GoOn:
        trial.status, trial.goal = SearchStatus.RUNNING, self._rungs.beyond(trial.reached)
        return GoOn(trial.number)

    def _go_on_at_last(self) -> Choice:
        """The paused trial that most probably becomes the best, if that is more than improbable."""
        paused = [trial for trial in self._trials.values() if trial.status is SearchStatus.PAUSED]
        if not paused or self._nothing_left:
            return None
        view = self._view()
        if view is None:
            return self._go_on(paused[0])
        hopeful = view.paused[view.chances[view.paused] > MIN_CHANCE]
        if len(hopeful):
            return self._go_on(view.trials[int(hopeful[view.chances[hopeful].argmax()])])
        self._nothing_left = True
        return None

    def _worth_going_on(self, view: ModelView, proposal: Array) -> ModelledTrial | None:
        """The paused trial that is worth more than starting the proposed one; None: there is none."""
        paused = view.paused
        if not len(paused):
            return None
        mean, error, incumbent = view.mean[paused], view.error[paused], view.incumbent
        left = np.array([1 - view.trials[index].reached / self._rungs.end for index in paused])
        worth = np.exp(log_expected_improvement(mean, error, incumbent)) / left
        chosen = int(mean.argmax() if self._num_completions() < NUM_BY_MEAN else worth.argmax())
        in_sight = max(incumbent, float(mean.max()))
        expected, _ = view.posterior.final(proposal[None])
        shift = np.array([view.posterior.shift_by_rung(proposal)])
        of_start = float(np.exp(log_expected_improvement(expected, shift, in_sight)[0]))
        of_start /= self._rungs.first / self._rungs.end
        is_worth_more = worth[chosen] > COMPLETION_BIAS * of_start
        share, (least, most) = self._completion_share(), COMPLETION_SHARE
        has_chance = view.chances[paused[chosen]] > MIN_CHANCE
        if (is_worth_more and share < most) or (has_chance and share < least):
            return view.trials[int(paused[chosen])]
        return None

    def _first_of_its_branch(self, view: ModelView) -> ModelledTrial | None:
        """The most promising paused trial among the branches without a trial that is finished or will be; None: no such
        trial has a chance, or the space has no branches."""
        known = {
            trial.branch
            for trial in self._trials.values()
            if trial.final is not None or (trial.status is SearchStatus.RUNNING and trial.goal > self._rungs.first)
        }
        if self._num_branches == 1 or len(known) >= self._num_branches:
            return None
        firsts = [index for index in view.paused if view.trials[index].branch not in known]
        hopeful = [index for index in firsts if view.best is None or view.chances[index] > MIN_CHANCE]
        return max((view.trials[index] for index in hopeful), key=lambda trial: trial.mean, default=None)

    def _num_completions(self) -> int:
        """The number of trials beyond the first rung, or on their way there, without those that failed there."""
        return sum(
            trial.goal > self._rungs.first and (trial.status is not SearchStatus.ENDED or trial.final is not None)
            for trial in self._trials.values()
        )

    def _completion_share(self) -> float:
        """The share of all finished and current work that is beyond the first rung."""
        first, beyond = 0, 0
        for trial in self._trials.values():
            is_under_way = trial.status is SearchStatus.RUNNING
            steps = trial.goal if is_under_way else trial.reached
            first += min(steps, self._rungs.first)
            beyond += max(0, steps - self._rungs.first)
        return beyond / max(1, first + beyond)

    def _view(self) -> ModelView | None:
        """Fits the model to the known trials; None: there are too few."""
        self._forget()
        trials = [trial for trial in self._trials.values() if not trial.forgotten]
        ends, twins = self._known_ends(trials)
        points = observed_points(trials, ends, self._rungs)
        if len(points) < 2:
            return None
        rows = rows_of(trials, points, is_minimised=self._is_minimised)
        vectors = np.array([trial.vector for trial in trials])
        if len(points) >= REFIT_GROWTH * self._num_fitted:
            self._model.fit(vectors, rows)
            self._num_fitted = len(points)
        posterior = self._model.condition(vectors, rows)
        finished = [row for row, at in enumerate(points) if not at.distance and trials[at.trial].final is not None]
        ended = [trials[points[row].trial] for row in finished]
        errors = branch_errors(trials, ended, lambda: posterior.errors_left_out(finished))
        under_way = [
            (index, self._rungs.distance(trial.goal))
            for index, trial in enumerate(trials)
            if trial.status is SearchStatus.RUNNING and trial.number not in ends
        ]
        if under_way:
            indices, distances = np.array([i for i, _ in under_way]), np.array([d for _, d in under_way])
            believed = rows.extended(indices, distances, posterior.believed(indices, distances))
            posterior = self._model.condition(vectors, believed)
        mean, deviation = posterior.final_of_known()
        for trial, expected in zip(trials, mean, strict=True):
            trial.mean = float(expected)
        best = float(rows.target[finished].max()) if finished else None
        return ModelView(trials, posterior, vectors, mean, deviation, np.hypot(deviation, errors), best, twins)

    def _known_ends(self, trials: Sequence[ModelledTrial]) -> tuple[dict[int, float], frozenset[int]]:
        """The final values by trial (NaN: its parameters made it fail), and the trials that have it from a twin."""
        finished = {trial.number: trial.final for trial in trials if trial.final is not None}
        failed = {trial.number: math.nan for trial in trials if trial.failed}
        twins = ends_of_twins(
            [(self._beginning(trial), trial.final) for trial in trials if trial.final is not None],
            [(trial.number, self._beginning(trial)) for trial in trials if trial.status is SearchStatus.PAUSED],
        )
        return {**finished, **failed, **twins}, frozenset(twins)

    def _beginning(self, trial: ModelledTrial) -> Beginning:
        return tuple(value for step, value in trial.curve if step <= self._rungs.first)

    def _forget(self) -> None:
        """Removes the least promising trials from the model, except some of them, once there are too many."""
        known = [t for t in self._trials.values() if t.status is not SearchStatus.RUNNING and not t.forgotten]
        if len(known) <= MAX_KNOWN:
            return
        known.sort(key=lambda trial: -trial.mean)
        for trial in known[MAX_KNOWN // 2 :: 2]:
            trial.forgotten = True
