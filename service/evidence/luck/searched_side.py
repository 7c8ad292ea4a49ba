"""A search that has ended, or a baseline's, as the models of its luck see it: plain values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from search_spaces import Categorical, Scalar, SearchSpace

INACTIVE = 0.5
"""Coordinate of a parameter that its conditions switch off: two such configs do not differ in it."""
CHOICE = 0.5
"""Coordinate of the choice that was made, where 0 is that of the others: two choices are as far apart as positions at
0.7 from each other."""


@dataclass(frozen=True, slots=True)
class TriedTrial:
    """A trial of a search: completed, pruned, cut off after a measurement, or failed."""

    number: int
    point: tuple[float, ...]
    """Its config as `point_of` gives it; equally long for all trials of a search."""
    curve: Sequence[tuple[int, float]]
    """Training examples seen, as batch sizes may differ, and objective at each measurement at which that was finite."""
    has_completed: bool
    has_failed: bool = False


@dataclass(frozen=True, slots=True)
class SearchedSide:
    """The trials of a search, and its best configs trained again with new seeds."""

    trials: Sequence[TriedTrial]
    repeats: Mapping[int, Sequence[float]]
    """The objective with each new seed, by the number of the trial whose config was repeated; those that failed with a
    seed are left out."""
    chosen: int
    """The number of the one that stands for the side."""
    top_k: int
    """Configs that were to be repeated."""
    num_choosing: int
    """New seeds by which the chosen one was chosen."""

    def __post_init__(self) -> None:
        completed = {trial.number for trial in self.trials if trial.has_completed and trial.curve}
        if self.chosen not in self.repeats or not completed.issuperset(self.repeats):
            raise ValueError(f"chosen {self.chosen} of repeated {list(self.repeats)} of completed {sorted(completed)}")


def point_of(space: SearchSpace, values: Mapping[str, Scalar]) -> tuple[float, ...]:
    """Coordinates of an assignment, in which near configs are near: positions in [0, 1], and one for each choice."""
    active = space.active(values)
    found: list[float] = []
    for indices in space.dimensions():
        parameter = space.parameters[indices[0]]
        named = [space.parameters[index] for index in indices]
        is_set = parameter.name in values and any(own in active for own in named)
        value: Any = values.get(parameter.name)
        if isinstance(parameter, Categorical):
            is_only = len(parameter.choices) == 1  # and tells nothing, set or not
            found += [CHOICE if is_only or (is_set and choice == value) else 0.0 for choice in parameter.choices]
        else:
            found.append(parameter.to_unit(value) if is_set else INACTIVE)
    return tuple(found)


def typical_distance(num_coordinates: int) -> float:
    """Root mean square of the distance of two points drawn uniformly from a cube of side 1."""
    return math.sqrt(num_coordinates / 6.0)
