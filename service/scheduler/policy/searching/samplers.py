"""The samplers of a job by name: which parameters a phase tries next, given how its trials ended.

A suggestion is a function of the seed, the trial's number and the trials known at that time; nothing else is
remembered. So a study rebuilt from stored trials continues exactly as the interrupted one would have. (CMA-ES starts
again around the best known trials, because its distribution cannot be rebuilt from trials. A user's own sampler may
remember anything.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, get_args

from optuna import Study
from optuna.samplers import BaseSampler, RandomSampler

from search_spaces import SearchSpace
from service.domain import Direction, SamplerName
from service.scheduler.policy.searching.sampling.dimensions import Dimensions
from service.scheduler.policy.searching.sampling.genetic import GeneticSampler, make_nsga2, make_nsga3
from service.scheduler.policy.searching.sampling.grid import ConditionalGridSampler
from service.scheduler.policy.searching.sampling.learning import make_cmaes, make_gp, make_tpe
from service.scheduler.policy.searching.sampling.rounded import RoundedSampler, seed_of
from service.scheduler.policy.searching.sampling.sobol import SobolSampler
from service.scheduler.policy.searching.sampling.user_sampler import UserSampler
from service.scheduler.policy.searching.study import SearchStudy

TELLING_WORST = ("gp", "cmaes")
"""Samplers that learn only from completed trials, with one objective."""


def make_sampler(
    name: SamplerName,
    space: SearchSpace,
    *,
    directions: Sequence[Direction],
    num_trials: int,
    seed: str,
) -> SearchStudy:
    """The study of a phase of `num_trials` trials, with the sampler `name`.

    Args:
        directions: in which the objectives are better.

    Raises:
        ValueError: there is no such sampler, or it knows only one objective.
    """
    if len(directions) > 1 and name in TELLING_WORST:
        raise ValueError(f"sampler {name!r} knows one objective, got {len(directions)}")
    dimensions = Dimensions(space)
    return SearchStudy(
        dimensions,
        directions,
        _make(name, space, dimensions, num_trials, seed),
        tells_worst=name in TELLING_WORST,
        without_effect=name in ("nsga2", "nsga3"),
    )


def adopt_sampler(
    kind: type[BaseSampler],
    options: Mapping[str, Any],
    space: SearchSpace,
    *,
    directions: Sequence[Direction],
    seed: str,
) -> SearchStudy:
    """The study of a phase with a user's own sampler, which is made once, with these arguments, and then kept."""
    dimensions = Dimensions(space)

    def make(_: Study, seed_now: int) -> BaseSampler:
        return UserSampler(kind, options, seed=seed_now)

    return SearchStudy(dimensions, directions, RoundedSampler(dimensions, make, seed=seed, is_kept=True))


def _make(name: SamplerName, space: SearchSpace, dimensions: Dimensions, num_trials: int, seed: str) -> BaseSampler:
    match name:
        case "random":
            return RoundedSampler(dimensions, _anew(RandomSampler), seed=seed, is_kept=False)
        case "quasi":
            return SobolSampler(space, dimensions, seed=seed_of(seed))
        case "grid":
            return ConditionalGridSampler(space, dimensions, seed=seed)
        case "tpe":
            return RoundedSampler(dimensions, _anew(partial(make_tpe, num_trials)), seed=seed, is_kept=False)
        case "gp":
            return RoundedSampler(dimensions, _anew(make_gp), seed=seed, is_kept=False)
        case "cmaes":
            return RoundedSampler(dimensions, make_cmaes, seed=seed, is_kept=True)
        case "nsga2":
            return GeneticSampler(dimensions, partial(make_nsga2, num_trials), seed=seed)
        case "nsga3":
            return GeneticSampler(dimensions, partial(make_nsga3, num_trials), seed=seed)
    raise ValueError(f"unknown sampler {name!r} (known: {', '.join(get_args(SamplerName))})")


def _anew(make: Callable[[int], BaseSampler]) -> Callable[[Study, int], BaseSampler]:
    """A maker of samplers that only need a seed."""
    return lambda _, seed: make(seed)
