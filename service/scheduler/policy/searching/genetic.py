"""NSGA-II and NSGA-III in a steady state: each suggestion is a child of the best trials known when it is made.

Optuna's own samplers breed generation by generation, 50 trials each: a job of 50 trials would be all random draws, and
which generation a trial was made for is known only to the study that asked for it. Here the parents are chosen anew for
each child among all completed trials, so that a suggestion follows from those trials and the seed, trials teach as soon
as they end, and any number of workers is kept busy (asynchronous steady-state NSGA-II, Durillo et al., 2008).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from optuna import Study
from optuna.samplers import BaseSampler, NSGAIIISampler, NSGAIISampler
from optuna.trial import FrozenTrial, TrialState

from search_spaces import Scalar, SearchSpace
from service.domain import Direction
from service.scheduler.policy.searching.optuna_search import OptunaSearch

MAX_PARENTS = 50
MIN_PARENTS = 8
MAX_TWINS = 10
"""Children that a genetic sampler draws before it suggests one that has been tried."""


class GeneticSearch(OptunaSearch):
    """Sampling by inheritance, which takes all parameters of a trial: Optuna's samplers would draw all those under a
    condition at random. Genes without effect are random, those of stored trials included; a child that is the twin of
    an earlier trial is not trained again."""

    _asks_for_all = True

    def __init__(
        self, space: SearchSpace, directions: Sequence[Direction], *, make: Callable[[int], BaseSampler], seed: str
    ) -> None:
        super().__init__(space, directions, make=make, seed=seed)
        self._begun: set[tuple[tuple[str, Scalar], ...]] = set()

    def begin(self, number: int, parameters: Mapping[str, Scalar]) -> None:
        self._begun.add(tuple(parameters.items()))
        super().begin(number, parameters)

    def suggest(self, number: int) -> dict[str, Scalar]:
        for attempt in range(MAX_TWINS):
            parameters = self._draw(f"{self._seed}/{number}/{attempt}")
            if tuple(parameters.items()) not in self._begun:
                break
        self.begin(number, parameters)
        return parameters


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
    return _SteadyNsga3(population_size=num_parents(num_trials), seed=seed)


def _completed(study: Study) -> list[FrozenTrial]:
    return study.get_trials(deepcopy=False, states=[TrialState.COMPLETE])
