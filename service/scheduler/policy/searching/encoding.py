"""A search space as vectors: positions in [0, 1] for the model, with distances that respect conditions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from search_spaces import Categorical, Float, Integer, Parameter, Scalar, SearchSpace
from search_spaces.parameters import is_active, is_same
from service.evidence.luck.searched_side import CHOICE, INACTIVE

Array: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]


class Encoding:
    """Turns assignments of a space into vectors and back.

    A vector has one position per dimension of the space, in its order (`SearchSpace.dimensions`): one name with two
    ranges under two conditions is two dimensions, with one range it is one. Vectors are *snapped*: integers and choices
    lie in the middle of their slices, and dimensions without an active parameter at `INACTIVE`.
    """

    def __init__(self, space: SearchSpace) -> None:
        self._parameters = space.parameters
        self._space = space
        grouped = space.dimensions()
        self._ranges = [space.parameters[indices[0]] for indices in grouped]
        dimension_of = {index: dimension for dimension, indices in enumerate(grouped) for index in indices}
        self._dimension_of = [dimension_of[index] for index in range(len(space.parameters))]
        self._conditions = [self._conditions_of(index) for index in range(len(space.parameters))]
        self.is_categorical = np.array([isinstance(parameter, Categorical) for parameter in self._ranges], bool)
        self.is_branching = np.zeros(len(grouped), bool)
        self.is_branching[[dimension_of[space.parameters.index(parameter)] for parameter in space.branching]] = True

    @property
    def num_dimensions(self) -> int:
        return len(self._ranges)

    @property
    def names(self) -> list[str]:
        """The parameter of each dimension."""
        return [parameter.name for parameter in self._ranges]

    @property
    def decades(self) -> list[float]:
        """The decades of each dimension's range, on the reverse scale of the distance from 1; 0: its scale is not
        logarithmic."""
        return [_decades(parameter) for parameter in self._ranges]

    def encode(self, values: Mapping[str, Scalar]) -> Array:
        """The vector of an assignment."""
        vector = np.full(self.num_dimensions, INACTIVE)
        decided: dict[str, Scalar] = {}
        for parameter, dimension in zip(self._parameters, self._dimension_of, strict=True):
            if is_active(parameter, decided):
                value: Any = values[parameter.name]
                decided[parameter.name] = value
                vector[dimension] = parameter.to_unit(value)
        return vector

    def decode(self, vector: Array) -> dict[str, Scalar]:
        """The assignment at a vector, with an active parameter's value each."""
        values: dict[str, Scalar] = {}
        for parameter, dimension in zip(self._parameters, self._dimension_of, strict=True):
            if is_active(parameter, values):
                values[parameter.name] = parameter.from_unit(float(vector[dimension]))
        return values

    def sobol(self, num: int, *, seed: int, skip: int = 0) -> Array:
        """The snapped vectors (num, dimensions) of a scrambled Sobol sequence, after the first `skip`."""
        # Loading scipy.stats takes 0.3 s of a CPU and 23 MiB, which a search without draws does not need.
        from scipy.stats import qmc

        sequence = qmc.Sobol(self.num_dimensions, rng=seed)
        if skip:  # SciPy fails at 0
            sequence.fast_forward(skip)
        return self.snap(sequence.random(num))

    def snap(self, vectors: Array) -> Array:
        """The snapped vectors (n, dimensions) nearest to arbitrary positions in [0, 1]."""
        snapped = np.clip(vectors, 0.0, 1.0)
        for dimension, parameter in enumerate(self._ranges):
            if not isinstance(parameter, Float):
                snapped[:, dimension] = _snap_slices(parameter, snapped[:, dimension])
        active = np.ones((len(snapped), len(self._parameters)), bool)
        has_effect = np.zeros(snapped.shape, bool)
        for index, dimension in enumerate(self._dimension_of):
            for parents in self._conditions[index]:
                is_wanted = np.zeros(len(snapped), bool)
                for parent, positions in parents:
                    found = snapped[:, self._dimension_of[parent], None]
                    is_wanted |= active[:, parent] & np.isclose(found, positions, atol=1e-9).any(axis=1)
                active[:, index] &= is_wanted
            has_effect[:, dimension] |= active[:, index]
        snapped[~has_effect] = INACTIVE
        return snapped

    def features(self, vectors: Array) -> Array:
        """Coordinates of snapped vectors (n, dimensions) in which distances are Euclidean: choices are one-hot."""
        parts = []
        for dimension, parameter in enumerate(self._ranges):
            column = vectors[:, dimension, None]
            if isinstance(parameter, Categorical):
                centres = (np.arange(len(parameter.choices)) + 0.5) / len(parameter.choices)
                column = np.where(np.isclose(column, centres, rtol=0.0, atol=1e-9), CHOICE, 0.0)
            parts.append(column)
        return np.concatenate(parts, axis=1)

    def squares(self, features: Array) -> Array:
        """(dimensions, n, n), squared differences of the features (n, columns) along each dimension."""
        found = np.zeros((self.num_dimensions, len(features), len(features)))
        for dimension, column in zip(self.parameter_of_feature, features.T, strict=True):
            found[dimension] += np.square(column[:, None] - column)
        return found

    @property
    def parameter_of_feature(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """(features,) the dimension that each feature belongs to."""
        widths = [len(p.choices) if isinstance(p, Categorical) else 1 for p in self._ranges]
        return np.repeat(np.arange(self.num_dimensions), widths)

    def _conditions_of(self, index: int) -> Sequence[Sequence[tuple[int, Array]]]:
        """The parameters that each condition of a parameter names, by index, with the wanted positions of each."""
        found = []
        for name, allowed in self._parameters[index].when.items():
            parents = []
            for parent in range(index):
                parameter = self._parameters[parent]
                if parameter.name == name and isinstance(parameter, Categorical):
                    wanted = [c for c in parameter.choices if any(is_same(c, value) for value in allowed)]
                    parents.append((parent, np.array([parameter.to_unit(choice) for choice in wanted])))
            found.append(parents)
        return found


def _decades(parameter: Parameter) -> float:
    if isinstance(parameter, Categorical) or parameter.scale == "linear":
        return 0.0
    if isinstance(parameter, Integer):
        return math.log10((parameter.high + 0.5) / (parameter.low - 0.5))
    if parameter.scale == "log":
        return math.log10(parameter.high / parameter.low)
    return math.log10((1 - parameter.low) / (1 - parameter.high))


def _snap_slices(parameter: Integer | Categorical, positions: Array) -> Array:
    if isinstance(parameter, Categorical):
        count = len(parameter.choices)
        slices: Array = (np.minimum((positions * count).astype(int), count - 1) + 0.5) / count
        return slices
    low, high = parameter.low - 0.5, parameter.high + 0.5
    if parameter.scale == "log":
        ratio = np.log(high / low)
        values = np.clip(np.rint(low * np.exp(positions * ratio)), parameter.low, parameter.high)
        snapped: Array = np.log(values / low) / ratio
        return snapped
    values = np.clip(np.rint(low + positions * (high - low)), parameter.low, parameter.high)
    middle: Array = (values - low) / (high - low)
    return middle
