"""Whole jobs, simulated: a search, a baseline and a confirmation with the policies that jobs run."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from search_spaces import Scalar
from service.domain import Direction, FailureReason, Phase, SamplerName, TrialState, phase_of, side_of
from service.evidence.comparison.confirm import compare_over_seeds, confirm, split_seeds
from service.evidence.finished_trial import FinishedTrial
from service.evidence.luck.job_luck import sides_of
from service.evidence.luck.searched_side import SearchedSide
from service.evidence.types import ConfirmationResult
from service.scheduler.policy.confirmation import Confirmation
from service.scheduler.policy.job_policy import JobPolicy
from service.scheduler.policy.protocol import Decision, GiveUp, Resume, Start
from service.scheduler.policy.searching.auto import AutoSearch
from service.scheduler.policy.searching.phase_search import PhaseSearch, SampledSearch
from service.scheduler.policy.searching.pruners import make_pruner
from service.scheduler.policy.searching.samplers import make_sampler
from service.scheduler.policy.searching.search_prior import LENGTHS_IN_TABLES, KnownConfig
from service.scheduler.policy.sides import SidePlan
from tests.benchmarks.search.landscapes import Landscape
from trainers.config import OptimizerConfig, OptimizerName, TrialConfig
from trainers.stored_config import StoredConfig

SEARCHES: Mapping[str, tuple[SamplerName | None, bool]] = {
    "random": ("random", False),
    "tpe": ("tpe", False),
    "asha": ("random", True),
    "auto": (None, True),
}
"""Sampler, and whether it prunes; None: the `auto` search."""
METRIC = "loss"
OPTIMIZERS: dict[Phase, OptimizerName] = {Phase.SEARCH: "shampoo", Phase.BASELINE: "adamw"}


@dataclass(frozen=True, slots=True)
class Size:
    """Size of a job: each side gets the same."""

    num_trials: int
    top_k: int
    num_seeds: int
    """New seeds: those that choose among the `top_k`, and those with which the two chosen are compared."""

    @property
    def seeds(self) -> tuple[list[int], list[int]]:
        """The seeds that choose, and those that compare."""
        return split_seeds(range(self.num_seeds), top_k=self.top_k)

    def __str__(self) -> str:
        choosing, comparing = self.seeds
        seeds = f"{len(choosing)}+{len(comparing)} seeds"
        return f"{self.num_trials}+{self.num_trials} trials, top {self.top_k}, {seeds}"


@dataclass(frozen=True, slots=True)
class Recommended:
    """A side of a simulated job."""

    side: SearchedSide
    true_means: Mapping[int, float]
    """Mean over all seeds of each repeated config, by the number of its trial."""
    best_trial: float
    """True mean of the config whose trial had the best value."""
    best_value: float
    """The value of that trial, as the search itself saw it."""

    @property
    def true_mean(self) -> float:
        """True mean of the recommended config."""
        return self.true_means[self.side.chosen]


@dataclass(frozen=True, slots=True)
class SimulatedJob:
    """A job whose search and baseline have ended, and been confirmed."""

    result: ConfirmationResult
    sides: Mapping[Phase, Recommended]


@dataclass(frozen=True, slots=True)
class Completion:
    """A trial that was trained to its end."""

    number: int
    value: float
    num_started: int
    """Trials begun until then."""
    num_units: int
    """Units of training until then, of all trials."""


@dataclass(frozen=True, slots=True)
class SimulatedSearch:
    """A search that has ended."""

    parameters: Mapping[int, Mapping[str, Scalar]]
    completed: Mapping[int, float]
    curves: Mapping[int, list[float]]
    """The curve of each trial, as far as it was trained."""
    completions: Sequence[Completion]
    """The completed trials in their order."""


def simulated(landscapes: Mapping[Phase, Landscape], search: str, size: Size, number: int) -> SimulatedJob | None:
    """The job with that number; None: its two sides could not be compared over new seeds."""
    trials, result = searched_and_confirmed(landscapes, search, size, number)
    if result is None or compare_over_seeds(result, Direction.MINIMIZE) is None:
        return None
    sides = searched_sides(landscapes, trials, result, size)
    by_number = {trial.number: trial for trial in trials}
    found = {}
    for phase, side in sides.items():
        values = {own.number: own.curve[-1][1] for own in side.trials if own.has_completed}
        best = min(values, key=values.__getitem__)
        means = {own: landscapes[phase].mean(by_number[own].parameters) for own in {*side.repeats, best}}
        found[phase] = Recommended(side, {own: means[own] for own in side.repeats}, means[best], values[best])
    return SimulatedJob(result, found)


def searched_and_confirmed(
    landscapes: Mapping[Phase, Landscape], search: str, size: Size, number: int
) -> tuple[list[FinishedTrial], ConfirmationResult | None]:
    """The trials of the job with that number, and its confirmation; None: nothing was trained again."""
    seeds = {phase: 2 * number + place for place, phase in enumerate(landscapes, start=1)}
    searches = {phase: searched(own, search, size.num_trials, seeds[phase]) for phase, own in landscapes.items()}
    trials = [
        trial
        for place, (phase, ended) in enumerate(searches.items())
        for trial in _finished(phase, ended, first=place * size.num_trials)
    ]
    trials += _confirmed(landscapes, trials, size, seeds)
    choosing, comparing = size.seeds
    return trials, confirm(trials, Direction.MINIMIZE, choosing=choosing, comparing=comparing)


def searched_sides(
    landscapes: Mapping[Phase, Landscape], trials: Sequence[FinishedTrial], result: ConfirmationResult, size: Size
) -> dict[Phase, SearchedSide]:
    """The sides of a simulated job as the models of luck see them."""
    spaces = {side_of(phase, OPTIMIZERS[phase]): landscape.space for phase, landscape in landscapes.items()}
    choosing, _ = size.seeds
    return sides_of(result, trials, spaces, metric=METRIC, top_k=size.top_k, num_choosing=len(choosing))


def _finished(phase: Phase, ended: SimulatedSearch, *, first: int) -> list[FinishedTrial]:
    """The trials of a search, as a job stores them, numbered from `first`."""
    trials = []
    for number, curve in ended.curves.items():
        state = TrialState.COMPLETED if number in ended.completed else TrialState.PRUNED
        has_diverged = not math.isfinite(curve[-1])
        trials.append(
            FinishedTrial(
                first + number,
                phase,
                TrialState.FAILED if has_diverged else state,
                FailureReason.DIVERGED if has_diverged else None,
                _config(phase, 0),
                ended.completed.get(number),
                [(step, 0.0, {METRIC: value}) for step, value in enumerate(curve, start=1)],
                parameters=ended.parameters[number],
            )
        )
    return trials


def _config(phase: Phase, seed: int) -> StoredConfig:
    """A trial's config, with what of it the evidence reads."""
    config = TrialConfig(
        workload="simulated",
        optimizer=OptimizerConfig(OPTIMIZERS[phase]),
        num_steps=1,
        batch_size=1,
        evaluate_every=1,
        seed=seed,
    )
    return StoredConfig.of(config.to_json())


def _confirmed(
    landscapes: Mapping[Phase, Landscape], found: Sequence[FinishedTrial], size: Size, seeds: Mapping[Phase, int]
) -> list[FinishedTrial]:
    """The confirmation trials that the policy asks for, one after another."""
    choosing, comparing = size.seeds
    policy = Confirmation(
        top_k=size.top_k,
        choosing=choosing,
        comparing=comparing,
        direction=Direction.MINIMIZE,
        spaces={side_of(phase, OPTIMIZERS[phase]): own.space for phase, own in landscapes.items()},
    )
    by_number = {trial.number: trial for trial in found}
    for trial in found:
        if trial.state is TrialState.COMPLETED:
            policy.add(trial.number, side_of(trial.phase, OPTIMIZERS[trial.phase]), trial.parameters, trial.value)
    # What a seed does to all configs alike is not simulated: each side has seeds of its own.
    new = {
        phase: random.Random(f"{seed}/new seeds").sample(range(1, 2**30), len(choosing) + len(comparing))
        for phase, seed in seeds.items()
    }
    trials: list[FinishedTrial] = []
    while left := policy.left():
        repeats = left[0]
        policy.begin(repeats)
        parameters = by_number[repeats.number].parameters
        phase = phase_of(repeats.side)
        value = landscapes[phase].curve(parameters, new[phase][repeats.seed])[-1]
        is_finite = math.isfinite(value)
        trial = FinishedTrial(
            len(found) + len(trials),
            Phase.CONFIRMATION,
            TrialState.COMPLETED if is_finite else TrialState.FAILED,
            None if is_finite else FailureReason.DIVERGED,
            _config(phase, repeats.seed),
            value if is_finite else None,
            (),
            confirms=repeats.number,
        )
        policy.end(repeats, trial.state, trial.value)
        trials.append(trial)
    return trials


def searched(
    landscape: Landscape,
    search: str,
    num_trials: int,
    seed: int,
    *,
    max_units: float = math.inf,
    known: Sequence[KnownConfig] = (),
    lengths: Mapping[str, float] = LENGTHS_IN_TABLES,
) -> SimulatedSearch:
    """A search with one worker, and all its trials with one seed.

    Args:
        max_units: of training of all trials, after which it is broken off.
        known: configs that were good for other models, the nearest first: pinned, and told to `auto`.
        lengths: length scales that `auto` expects beside known configs.
    """
    make = functools.partial(_phase_search, landscape, search, num_trials, seed, known, lengths)
    pinned = tuple(config.parameters for config in known)
    policy = JobPolicy([SidePlan(Phase.SEARCH.value, landscape.space, num_trials, make, pinned=pinned)])
    parameters: dict[int, Mapping[str, Scalar]] = {}
    curves: dict[int, list[float]] = {}
    reached: dict[int, int] = {}
    completions: list[Completion] = []
    num_units = 0
    while num_units < max_units and isinstance(work := policy.ask(), Start | Resume | GiveUp):
        number = work.number
        if isinstance(work, GiveUp):
            policy.tell(number, TrialState.PRUNED)
            continue
        if isinstance(work, Start):
            parameters[number], reached[number] = work.parameters, 0
            curves[number] = landscape.curve(work.parameters, seed)
        decision = Decision.CONTINUE
        while decision is Decision.CONTINUE:
            reached[number] += 1
            num_units += 1
            value = curves[number][reached[number] - 1]
            if not math.isfinite(value):
                policy.tell(number, TrialState.FAILED, (), FailureReason.DIVERGED)
                break
            decision = policy.report(number, reached[number], value)
            if reached[number] == landscape.num_units:
                policy.tell(number, TrialState.COMPLETED, (value,))
                completions.append(Completion(number, value, len(parameters), num_units))
                break
        else:
            if decision is Decision.STOP:
                policy.tell(number, TrialState.PRUNED)
    return SimulatedSearch(
        parameters,
        {one.number: one.value for one in completions},
        {number: curve[: reached[number]] for number, curve in curves.items()},
        completions,
    )


def _phase_search(
    landscape: Landscape,
    search: str,
    num_trials: int,
    seed: int,
    known: Sequence[KnownConfig],
    lengths: Mapping[str, float],
) -> PhaseSearch:
    sampler, prunes = SEARCHES[search]
    if sampler is None:
        return AutoSearch(
            landscape.space,
            direction=Direction.MINIMIZE,
            max_steps=landscape.num_units,
            seed=seed,
            known=known,
            lengths=lengths,
        )
    return SampledSearch(
        make_sampler(
            sampler,
            landscape.space,
            directions=[Direction.MINIMIZE],
            num_trials=num_trials,
            seed=f"{seed}/{search}",
        ),
        make_pruner(
            "asha" if prunes else "none",
            min_steps=max(1, landscape.num_units // 9),
            max_steps=landscape.num_units,
            reduction_factor=3,
            direction=Direction.MINIMIZE,
        ),
    )
