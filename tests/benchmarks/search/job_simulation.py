"""Whole jobs, simulated: a search and a baseline with the policies that jobs run, the best of both trained again with
new seeds, and what the evidence says."""

from __future__ import annotations

import functools
import math
import random
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from search_spaces import Scalar
from service.domain import Direction, FailureReason, Phase, SamplerName, TrialState
from service.evidence.searched_side import SearchedSide, TriedTrial, point_of
from service.scheduler.policy.phases import JobPolicy, SidePlan
from service.scheduler.policy.protocol import Decision, GiveUp, Resume, Start
from service.scheduler.policy.searching.auto import AutoSearch
from service.scheduler.policy.searching.phase_search import PhaseSearch, SampledSearch
from service.scheduler.policy.searching.pruners import make_pruner
from service.scheduler.policy.searching.samplers import make_sampler
from tests.benchmarks.search.landscapes import Landscape

SEARCHES: Mapping[str, tuple[SamplerName | None, bool]] = {
    "random": ("random", False),
    "tpe": ("tpe", False),
    "asha": ("random", True),
    "auto": (None, True),
}
"""Sampler, and whether it prunes; None: the `auto` search."""


@dataclass(frozen=True, slots=True)
class Size:
    """Of a job: each side gets the same."""

    num_trials: int
    top_k: int
    num_choosing: int
    """New seeds that choose among the `top_k`."""
    num_comparing: int
    """New seeds with which the two chosen are compared."""

    def __str__(self) -> str:
        trials, seeds = f"{self.num_trials}+{self.num_trials}", f"{self.num_choosing}+{self.num_comparing}"
        return f"{trials} trials, top {self.top_k}, {seeds} seeds"


@dataclass(frozen=True, slots=True)
class Recommended:
    """A side of a simulated job."""

    side: SearchedSide
    compared: list[float]
    """The chosen config's values with the comparing seeds."""
    true_means: Mapping[int, float]
    """Over all seeds, of each repeated config by the number of its trial."""
    best_trial: float
    """True mean of the config whose trial had the best value."""
    best_value: float
    """That value, which the search itself saw."""

    @property
    def true_mean(self) -> float:
        """Of the recommended config."""
        return self.true_means[self.side.chosen]


@dataclass(frozen=True, slots=True)
class _Search:
    parameters: Mapping[int, Mapping[str, Scalar]]
    completed: Mapping[int, float]
    curves: Mapping[int, list[float]]
    """As far as each trial was trained."""


def recommended(landscape: Landscape, search: str, size: Size, seed: int) -> Recommended | None:
    """One side of the job that `seed` draws; None: nothing could be recommended.

    A config that fails with a new seed gives way to the next one.
    """
    ended = _searched(landscape, search, size.num_trials, seed)
    ranked = sorted(ended.completed, key=lambda number: (ended.completed[number], number))
    candidates = [
        n for i, n in enumerate(ranked) if all(ended.parameters[n] != ended.parameters[o] for o in ranked[:i])
    ]
    rng = random.Random(f"{seed}/new seeds")
    new = rng.sample(range(1, 2**30), size.num_choosing + size.num_comparing)

    def values(number: int, seeds: list[int]) -> list[float]:
        return [landscape.curve(ended.parameters[number], other)[-1] for other in seeds]

    chosen_by = {number: values(number, new[: size.num_choosing]) for number in candidates[: size.top_k]}
    repeats = {number: own for number, own in chosen_by.items() if all(map(math.isfinite, own))}
    while repeats:
        chosen = min(repeats, key=lambda number: statistics.fmean(repeats[number]))
        compared = values(chosen, new[size.num_choosing :])
        if all(map(math.isfinite, compared)):
            break
        del repeats[chosen]
    else:
        return None
    side = SearchedSide(
        trials=[
            TriedTrial(
                number,
                point_of(landscape.space, ended.parameters[number]),
                [(step, value) for step, value in enumerate(curve, start=1) if math.isfinite(value)],
                has_completed=number in ended.completed,
                has_failed=not math.isfinite(curve[-1]),
            )
            for number, curve in ended.curves.items()
        ],
        repeats={**repeats, chosen: [*repeats[chosen], *compared]},
        chosen=chosen,
        top_k=size.top_k,
        num_choosing=size.num_choosing,
    )
    means = {number: landscape.mean(ended.parameters[number]) for number in {*repeats, ranked[0]}}
    true_means = {number: means[number] for number in repeats}
    return Recommended(side, compared, true_means, means[ranked[0]], ended.completed[ranked[0]])


def _searched(landscape: Landscape, search: str, num_trials: int, seed: int) -> _Search:
    """A search with one worker, and all its trials with one seed."""
    make = functools.partial(_phase_search, landscape, search, num_trials, seed)
    policy = JobPolicy([SidePlan(Phase.SEARCH, landscape.space, num_trials, make)])
    parameters: dict[int, Mapping[str, Scalar]] = {}
    curves: dict[int, list[float]] = {}
    reached: dict[int, int] = {}
    completed: dict[int, float] = {}
    while isinstance(work := policy.ask(), Start | Resume | GiveUp):
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
            value = curves[number][reached[number] - 1]
            if not math.isfinite(value):
                policy.tell(number, TrialState.FAILED, (), FailureReason.DIVERGED)
                break
            decision = policy.report(number, reached[number], value)
            if reached[number] == landscape.num_units:
                policy.tell(number, TrialState.COMPLETED, (value,))
                completed[number] = value
                break
        if decision is Decision.STOP and number not in completed:
            policy.tell(number, TrialState.PRUNED)
    return _Search(parameters, completed, {number: curve[: reached[number]] for number, curve in curves.items()})


def _phase_search(landscape: Landscape, search: str, num_trials: int, seed: int) -> PhaseSearch:
    sampler, prunes = SEARCHES[search]
    if sampler is None:
        return AutoSearch(landscape.space, direction=Direction.MINIMIZE, max_steps=landscape.num_units, seed=seed)
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
