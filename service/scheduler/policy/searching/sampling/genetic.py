"""NSGA-II and NSGA-III in a steady state: each suggestion is a child of the best trials known when it is made.

Optuna's own samplers breed generation by generation, with 50 trials each: a job of 50 trials would consist of random
draws, and only the study that asked for a trial knows its generation. Here the parents of each child are chosen again
among all completed trials. So a suggestion depends only on these trials and the seed, trials count as soon as they end,
and any number of workers is kept busy (asynchronous steady-state NSGA-II, Durillo et al., 2008).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from optuna import Study
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, NSGAIIISampler, NSGAIISampler
from optuna.trial import FrozenTrial, TrialState

from service.scheduler.policy.searching.sampling.dimensions import Dimensions
from service.scheduler.policy.searching.sampling.learning import experimental
from service.scheduler.policy.searching.sampling.rounded import seed_of
from service.scheduler.policy.searching.sampling.whole import Begun, GivenSampler

MAX_PARENTS = 50
"""Optuna's population size."""
MIN_PARENTS = 8
"""Fewest parents, by judgement: with fewer, children are too similar."""
MAX_TWINS = 10
"""Children that a genetic sampler draws before it suggests one that has been tried."""


class GeneticSampler(GivenSampler):
    """Sampling by inheritance, which takes all parameters of a trial: Optuna's samplers would draw all those under a
    condition at random. Genes without effect are random, those of stored trials included; a child that is the twin of
    an earlier trial is not trained again."""

    def __init__(self, dimensions: Dimensions, make: Callable[[int], BaseSampler], *, seed: str) -> None:
        """Prepares a sampler.

        Args:
            dimensions: of the study, whose trials have values for all of them, without effect or not.
            make: gives one of Optuna's for a seed.
            seed: makes suggestions reproducible.
        """
        self._dimensions = dimensions
        self._make = make
        self._seed = seed
        self._begun = Begun(dimensions)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self._dimensions.distributions

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        begun = self._begun.up_to(study, trial.number)
        child: dict[str, Any] = {}
        for attempt in range(MAX_TWINS):
            sampler = self._make(seed_of(self._seed, trial.number, attempt))
            inherited = sampler.sample_relative(study, trial, sampler.infer_relative_search_space(study, trial))
            for key, distribution in search_space.items():
                drawn = key not in inherited
                value = sampler.sample_independent(study, trial, key, distribution) if drawn else inherited[key]
                child[key] = self._dimensions.rounded(key, value)
            if tuple(self._dimensions.decoded(child).items()) not in begun:
                break
        has_effect = self._dimensions.encoded(self._dimensions.decoded(child))
        return {key: value for key, value in child.items() if key in has_effect}


class _SteadyState:
    """Overrides of a sampler of Optuna's that breeds in generations: 0 is at random, 1 are children of all others."""

    def get_trial_generation(self, study: Study, trial: FrozenTrial) -> int:
        return int(len(_completed(study)) >= self.population_size)  # type: ignore[attr-defined]

    def get_population(self, study: Study, generation: int) -> list[FrozenTrial]:
        return _completed(study)

    def get_parent_population(self, study: Study, generation: int) -> list[FrozenTrial]:
        parents: list[FrozenTrial] = self.select_parent(study, generation) if generation else []  # type: ignore[attr-defined]
        return parents


class _SteadyNsga2(_SteadyState, NSGAIISampler):
    pass


class _SteadyNsga3(_SteadyState, NSGAIIISampler):
    pass


def num_parents(num_trials: int) -> int:
    """Parents in a phase of so many trials; until as many have completed, trials are drawn at random."""
    return min(MAX_PARENTS, max(MIN_PARENTS, num_trials // 4))


def make_nsga2(num_trials: int, seed: int) -> BaseSampler:
    """A sampler guided by crowding distances."""
    return _SteadyNsga2(population_size=num_parents(num_trials), seed=seed)


def make_nsga3(num_trials: int, seed: int) -> BaseSampler:
    """A sampler guided by reference directions."""
    with experimental():
        return _SteadyNsga3(population_size=num_parents(num_trials), seed=seed)


def _completed(study: Study) -> list[FrozenTrial]:
    return study.get_trials(deepcopy=False, states=[TrialState.COMPLETE])
