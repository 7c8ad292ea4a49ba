"""Samplers that suggest whole assignments of a space known beforehand, conditions included."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from optuna import Study
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.trial import FrozenTrial

from search_spaces import Scalar
from service.scheduler.policy.searching.sampling.dimensions import Dimensions
from service.scheduler.policy.searching.sampling.rounded import seed_of


class GivenSampler(BaseSampler):
    """A sampler of trials whose values are given: only those without effect are left, and drawn at random.

    They follow from the trial's number alone, as they are no part of what is stored of a trial.
    """

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return {}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return {}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        sampler = RandomSampler(seed_of("without effect", trial.number, param_name))
        return sampler.sample_independent(study, trial, param_name, param_distribution)


class WholeSampler(GivenSampler):
    """A sampler whose every suggestion is an assignment of the space, with a value for each parameter with effect."""

    def __init__(self, dimensions: Dimensions) -> None:
        self._dimensions = dimensions

    @abstractmethod
    def assignment(self, study: Study, number: int) -> Mapping[str, Scalar]:
        """The rounded assignment for the trial with that number in the study."""

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self._dimensions.distributions

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return self._dimensions.encoded(self.assignment(study, trial.number))


class Begun:
    """The assignments of the trials in a study, each read once."""

    def __init__(self, dimensions: Dimensions) -> None:
        self._dimensions = dimensions
        self._num_read = 0
        self._known: set[tuple[tuple[str, Scalar], ...]] = set()

    def up_to(self, study: Study, number: int) -> set[tuple[tuple[str, Scalar], ...]]:
        """The configs of all trials before the one with that number."""
        for trial in study.get_trials(deepcopy=False)[self._num_read : number]:
            self._known.add(tuple(self._dimensions.decoded(trial.params).items()))
        self._num_read = max(self._num_read, number)
        return self._known
