"""Samplers of Optuna's, or a user's, for the trials of a job: rounded, and if possible made again each time."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

from optuna import Study
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from service.scheduler.policy.searching.sampling.dimensions import Dimensions

MakeSampler: TypeAlias = Callable[[Study, int], BaseSampler]
"""Makes a sampler, given the study it is for and a seed."""


@runtime_checkable
class Exhaustible(Protocol):
    """A sampler that may have nothing left to suggest."""

    def is_exhausted(self, study: Study) -> bool:
        """True if it has not."""


class RoundedSampler(BaseSampler):
    """A sampler that rounds another one's values to few digits, as the job trains with them.

    So the study knows what was trained, and a study that is rebuilt from stored trials is equal to the first.
    """

    def __init__(self, dimensions: Dimensions, make: MakeSampler, *, seed: str, is_kept: bool) -> None:
        """Prepares a sampler.

        Args:
            dimensions: of the study.
            make: makes the sampler that it asks.
            seed: with the number of the trial that it is made for, makes that one's draws reproducible.
            is_kept: True: it is made when first asked, as it remembers what is in no trial. False: it is made for each
                trial, so that a suggestion follows from the seed, the number and the trials known.
        """
        self._dimensions = dimensions
        self._make = make
        self._seed = seed
        self._is_kept = is_kept
        self._asked: BaseSampler | None = None

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        if self._asked is None or not self._is_kept:
            self._asked = self._make(study, seed_of(self._seed, trial.number))
        self._asked.before_trial(study, trial)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self._sampler.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        found = self._sampler.sample_relative(study, trial, search_space)
        return {key: self._dimensions.rounded(key, value) for key, value in found.items()}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        found = self._sampler.sample_independent(study, trial, param_name, param_distribution)
        return self._dimensions.rounded(param_name, found)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        if self._is_kept and self._asked is not None:
            self._asked.after_trial(study, trial, state, values)

    def is_exhausted(self, study: Study) -> bool:
        """True if the sampler says that it has nothing left to suggest, as Optuna's grid does."""
        asked: object = self._asked
        return isinstance(asked, Exhaustible) and asked.is_exhausted(study)

    @property
    def _sampler(self) -> BaseSampler:
        assert self._asked is not None, "a study asks before_trial first"
        return self._asked


def seed_of(*parts: object) -> int:
    """A seed of 32 bits that follows from the parts."""
    return random.Random("/".join(map(str, parts))).getrandbits(32)
