"""Maps: the standing over two parameters, averaged over the trials near each point of a grid."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from search_spaces import Categorical, Integer, Parameter, Scalar
from search_spaces.parameters import is_same
from service.evidence.insights import ParameterMap
from service.scheduler.insights.compared import EndedTrial, Standings

NUM_CELLS = 16
"""Cells along one side of the grid, for a numeric parameter."""
MAX_PARAMETERS = 4
"""The number of parameters whose pairs get a map, at most."""
WIDTHS = (0.05, 0.2)
"""Bounds of the neighbourhood's width, as a share of the range; within them Scott's rule holds."""
MIN_WEIGHT = 1.0
"""Least total weight of the trials near a point, where a trial at the point itself weighs 1; with less, the cell is
empty."""
DIGITS = 3
"""Decimal digits of a standing from 0 to 1: finer than colours show."""


def maps_of(
    parameters: Sequence[Parameter], trials: Sequence[EndedTrial], standing: Standings, had_by: NDArray[np.bool_]
) -> list[ParameterMap]:
    """A map of each pair of the first parameters.

    Args:
        had_by: (parameters, trials): whether a trial had the parameter.
    """
    found = []
    for x, y in combinations(range(min(MAX_PARAMETERS, len(parameters))), 2):
        had = np.flatnonzero(had_by[x] & had_by[y]).tolist()
        if not had:
            continue
        of_x, of_y = (
            _Neighbourhood(parameters[index], [trials[trial].parameters[parameters[index].name] for trial in had])
            for index in (x, y)
        )
        weights_x, weights_y = of_x.weights, of_y.weights  # (cells, trials)
        weight = weights_y @ weights_x.T
        mean = (weights_y * standing[had]) @ weights_x.T / np.maximum(weight, 1e-12)
        cells = [
            [
                round(float(value), DIGITS) if near >= MIN_WEIGHT else None
                for value, near in zip(row, nears, strict=True)
            ]
            for row, nears in zip(mean, weight, strict=True)
        ]
        if any(cell is not None for row in cells for cell in row):
            found.append(ParameterMap(x, y, of_x.places, of_y.places, cells))
    return found


class _Neighbourhood:
    """The nearness of trials to the places of a grid along one parameter."""

    def __init__(self, parameter: Parameter, values: Sequence[Scalar]) -> None:
        if isinstance(parameter, Categorical):
            self.places: list[Scalar] = list(parameter.choices)
            self.weights = np.array([[float(is_same(place, value)) for value in values] for place in self.places])
            return
        self.places = _places(parameter)
        at = np.array([parameter.to_unit(value) for value in values])  # type: ignore[arg-type]  # numbers, as checked
        width = float(np.clip(at.std() * len(at) ** (-1 / 6), *WIDTHS))
        positions = np.array([parameter.to_unit(place) for place in self.places])  # type: ignore[arg-type]
        self.weights = np.exp(-0.5 * ((positions[:, None] - at[None, :]) / width) ** 2)


def _places(parameter: Parameter) -> list[Scalar]:
    """Values spread evenly over the range on its scale, each once."""
    count = NUM_CELLS
    if isinstance(parameter, Integer):
        count = min(count, parameter.high - parameter.low + 1)
    return list(dict.fromkeys(parameter.from_unit((index + 0.5) / count) for index in range(count)))
