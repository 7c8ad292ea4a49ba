"""A Sobol sequence over a space with conditions."""

from __future__ import annotations

from collections.abc import Mapping

from optuna import Study

from search_spaces import Scalar, SearchSpace
from service.scheduler.policy.searching.encoding import Encoding
from service.scheduler.policy.searching.sampling.dimensions import Dimensions
from service.scheduler.policy.searching.sampling.whole import WholeSampler


class SobolSampler(WholeSampler):
    """A scrambled Sobol sequence, more even than independent draws: a trial gets the point of its number.

    Optuna's `QMCSampler` does not suffice: it draws choices and all that stands under a condition at random, and keeps
    its place in the sequence in the study, from where a study rebuilt from stored trials would begin anew.
    """

    def __init__(self, space: SearchSpace, dimensions: Dimensions, *, seed: int) -> None:
        super().__init__(dimensions)
        self._encoding = Encoding(space)
        self._seed = seed

    def assignment(self, study: Study, number: int) -> Mapping[str, Scalar]:
        (vector,) = self._encoding.sobol(1, seed=self._seed, skip=number)
        return self._encoding.decode(vector)
