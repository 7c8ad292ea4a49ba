"""Samplers: which parameters a phase tries next, given how its trials ended.

A suggestion is a function of the seed, the trial's number and the trials known when it is made; nothing else is
remembered. So a sampler rebuilt from stored trials goes on exactly as the interrupted one would have. (CMA-ES alone
starts anew, around the best that is known: its distribution cannot be rebuilt from trials.)
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import get_args

from search_spaces import Categorical, Parameter, Scalar, SearchSpace
from search_spaces.parameters import is_active
from service.domain import Direction, SamplerName
from service.scheduler.policy.searching.encoding import Encoding
from service.scheduler.policy.searching.genetic import GeneticSearch, make_nsga2, make_nsga3
from service.scheduler.policy.searching.optuna_search import CmaEsSearch, OptunaSearch, make_gp, make_tpe
from service.scheduler.policy.searching.phase_search import Sampler, TrialOutcome

GRID_POINTS = 3
"""Values of a parameter on a grid, evenly spaced on its scale; of a categorical one, all."""
MAX_GRID = 100_000
"""Beyond so many points a grid is a random part of the whole one."""


def make_sampler(
    name: SamplerName,
    space: SearchSpace,
    *,
    directions: Sequence[Direction],
    num_trials: int,
    seed: str,
) -> Sampler:
    """The sampler `name` for a phase of `num_trials` trials.

    Args:
        directions: in which the objectives are better.

    Raises:
        ValueError: there is no such sampler, or it knows only one objective.
    """
    if len(directions) > 1 and name in ("gp", "cmaes"):
        raise ValueError(f"sampler {name!r} knows one objective, got {len(directions)}")
    match name:
        case "random":
            return RandomSearch(space, seed=seed)
        case "quasi":
            return QuasiRandomSearch(space, seed=seed)
        case "grid":
            return GridSearch(space, seed=seed)
        case "tpe":
            return OptunaSearch(space, directions, make=partial(make_tpe, num_trials), seed=seed)
        case "nsga2":
            return GeneticSearch(space, directions, make=partial(make_nsga2, num_trials), seed=seed)
        case "nsga3":
            return GeneticSearch(space, directions, make=partial(make_nsga3, num_trials), seed=seed)
        case "gp":
            return OptunaSearch(space, directions, make=make_gp, tells_worst=True, seed=seed)
        case "cmaes":
            return CmaEsSearch(space, direction=directions[0], seed=seed)
    raise ValueError(f"unknown sampler {name!r} (known: {', '.join(get_args(SamplerName))})")


class RandomSearch:
    """Independent draws from the space."""

    def __init__(self, space: SearchSpace, *, seed: str) -> None:
        self._space = space
        self._seed = seed

    def suggest(self, number: int) -> dict[str, Scalar]:
        return self._space.sample(random.Random(f"{self._seed}/{number}"))

    def begin(self, number: int, parameters: Mapping[str, Scalar]) -> None:
        """Nothing to learn."""

    def finish(self, number: int, outcome: TrialOutcome) -> None:
        """Nothing to learn."""


class QuasiRandomSearch:
    """A scrambled Sobol sequence: more even than independent draws."""

    def __init__(self, space: SearchSpace, *, seed: str) -> None:
        self._encoding = Encoding(space)
        self._seed = random.Random(seed).getrandbits(32)
        self._num_begun = 0

    def suggest(self, number: int) -> dict[str, Scalar]:
        (vector,) = self._encoding.sobol(1, seed=self._seed, skip=self._num_begun)
        self._num_begun += 1
        return self._encoding.decode(vector)

    def begin(self, number: int, parameters: Mapping[str, Scalar]) -> None:
        self._num_begun += 1

    def finish(self, number: int, outcome: TrialOutcome) -> None:
        """Nothing to learn."""


class GridSearch:
    """Every point of a grid once, in random order; after the last one there is nothing left to suggest."""

    def __init__(self, space: SearchSpace, *, seed: str) -> None:
        self._begun: set[tuple[tuple[str, Scalar], ...]] = set()
        self._left = self._points(space, random.Random(seed))

    def suggest(self, number: int) -> dict[str, Scalar] | None:
        for point in self._left:
            if tuple(point.items()) not in self._begun:
                self.begin(number, point)
                return point
        return None

    def begin(self, number: int, parameters: Mapping[str, Scalar]) -> None:
        self._begun.add(tuple(parameters.items()))

    def finish(self, number: int, outcome: TrialOutcome) -> None:
        """Nothing to learn."""

    @staticmethod
    def _points(space: SearchSpace, rng: random.Random) -> Iterator[dict[str, Scalar]]:
        """In random order; a point of switched-off parameters comes as often as they have values."""
        values = [_grid_values(parameter) for parameter in space.parameters]
        size = math.prod(map(len, values))
        whole = size <= MAX_GRID
        for index in rng.sample(range(size), size) if whole else (rng.randrange(size) for _ in range(MAX_GRID)):
            point: dict[str, Scalar] = {}
            for parameter, choices in zip(space.parameters, values, strict=True):
                index, position = divmod(index, len(choices))
                if is_active(parameter, point):
                    point[parameter.name] = choices[position]
            yield point


def _grid_values(parameter: Parameter) -> list[Scalar]:
    if isinstance(parameter, Categorical):
        return list(parameter.choices)
    positions = (number / (GRID_POINTS - 1) for number in range(GRID_POINTS))
    return list(dict.fromkeys(map(parameter.from_unit, positions)))
