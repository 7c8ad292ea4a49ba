"""A sampler of a user's own, named `module:Class`: any `optuna.samplers.BaseSampler`.

    python -m service.scheduler.policy.searching.sampling.user_sampler my_samplers:Mine '{"depth": 3}'

prints as JSON which field is wrong and why, or that none is; so the API learns it without importing anyone's code.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from optuna import Study
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from service.errors import InvalidInput
from service.scheduler.policy.searching.sampling.rounded import Exhaustible
from service.specification.search.own_sampler import CheckedSampler, SamplerFault
from trainers.config import InvalidConfig
from trainers.workload.user_workload import explain, import_class
from trainers.workloads.messages import answer


class SamplerFailed(BaseException):
    """A user's own sampler raised an error; the message is for a person.

    Not an `Exception`: nothing between the sampler and the run can help.
    """


class UserSampler(BaseSampler):
    """A user's own sampler, whose errors say whose they are."""

    def __init__(self, kind: type[BaseSampler], options: Mapping[str, Any], *, seed: int) -> None:
        """Makes the sampler.

        Raises:
            SamplerFailed: it cannot be made.
        """
        try:
            self._own = make_user_sampler(kind, options, seed=seed)
        except InvalidInput as error:
            raise SamplerFailed(error.message) from error

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        with self._named():
            self._own.before_trial(study, trial)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        with self._named():
            return self._own.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        with self._named():
            return self._own.sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        with self._named():
            return self._own.sample_independent(study, trial, param_name, param_distribution)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        with self._named():
            self._own.after_trial(study, trial, state, values)

    def is_exhausted(self, study: Study) -> bool:
        """True if the sampler says that it has nothing left to suggest, as Optuna's grid does."""
        own: object = self._own
        with self._named():
            return isinstance(own, Exhaustible) and own.is_exhausted(study)

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # the boundary to a user's own code
            kind = type(self._own)
            raise SamplerFailed(f"the sampler {kind.__module__}:{kind.__name__} failed: {explain(error)}") from error


def import_sampler(reference: str) -> type[BaseSampler]:
    """The class that `module:Class` names. This runs the module's code.

    Raises:
        InvalidInput: it cannot be imported, or is no sampler of Optuna's; names the field.
    """
    try:
        found = import_class(reference)
    except InvalidConfig as error:
        raise InvalidInput("sampler.name", error.message) from error
    if not issubclass(found, BaseSampler):
        raise InvalidInput("sampler.name", f"{reference} is no optuna.samplers.BaseSampler")
    return found


def make_user_sampler(kind: type[BaseSampler], options: Mapping[str, Any], *, seed: int) -> BaseSampler:
    """The sampler with these arguments, and with the seed where it takes one and they give none.

    Raises:
        InvalidInput: it cannot be made; names the field.
    """
    try:
        takes_seed = "seed" in inspect.signature(kind).parameters
        return kind(**{**({"seed": seed} if takes_seed else {}), **options})
    except Exception as error:  # the boundary to a user's own code
        raise InvalidInput("sampler.options", f"{kind.__name__} cannot be made: {explain(error)}") from error


def checked(reference: str, options: Mapping[str, Any]) -> CheckedSampler:
    """The answer about a sampler of a user's own: it is imported and made, or which field says why not."""
    try:
        make_user_sampler(import_sampler(reference), options, seed=0)
    except InvalidInput as error:
        return CheckedSampler(SamplerFault(error.field, error.message))
    return CheckedSampler(None)


def main(arguments: Sequence[str]) -> int:
    """Runs the command; 0 if it has answered."""
    reference, options = arguments
    return answer(lambda: checked(reference, json.loads(options)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
