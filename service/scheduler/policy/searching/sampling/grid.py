"""A grid over a space with conditions."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping

from optuna import Study

from search_spaces import Categorical, Parameter, Scalar, SearchSpace
from search_spaces.parameters import is_active
from service.scheduler.policy.searching.sampling.dimensions import Dimensions
from service.scheduler.policy.searching.sampling.whole import Begun, WholeSampler

GRID_POINTS = 3
"""Values of a parameter on a grid, evenly spaced on its scale; of a categorical one, all."""
MAX_GRID = 100_000
"""Most points of a grid: a larger one is a random part of the whole one."""


class ConditionalGridSampler(WholeSampler):
    """Every point of a grid once, in random order; after the last one it is exhausted.

    Optuna's `GridSampler` does not suffice: it tries a point once for each value of its switched-off parameters, holds
    the whole product in memory, and does not know as tried what was pinned or is rebuilt from stored trials.
    """

    def __init__(self, space: SearchSpace, dimensions: Dimensions, *, seed: str) -> None:
        super().__init__(dimensions)
        self._begun = Begun(dimensions)
        self._left = _points(space, random.Random(seed))
        self._next: dict[str, Scalar] | None = None

    def is_exhausted(self, study: Study) -> bool:
        """True if every point has been tried."""
        return self._untried(study, len(study.get_trials(deepcopy=False))) is None

    def assignment(self, study: Study, number: int) -> Mapping[str, Scalar]:
        """The next point that was not tried.

        Raises:
            ValueError: there is none.
        """
        found = self._untried(study, number)
        if found is None:
            raise ValueError("every point of the grid has been tried")
        return found

    def _untried(self, study: Study, number: int) -> dict[str, Scalar] | None:
        begun = self._begun.up_to(study, number)
        while self._next is None or tuple(self._next.items()) in begun:
            self._next = next(self._left, None)
            if self._next is None:
                return None
        return self._next


def _points(space: SearchSpace, rng: random.Random) -> Iterator[dict[str, Scalar]]:
    """The points in random order; a point of switched-off parameters comes as often as they have values."""
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
