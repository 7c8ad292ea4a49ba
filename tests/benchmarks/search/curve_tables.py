"""Tables of real learning curves, and each of them as a function of any configuration.

`digits_convnet`, `stdlib_gpt` and `digits_autoencoder` are objectives for `search_quality`; `make_curves` made the
tables. The last one is to check: no constant of `auto` was chosen on it, and no length scale was learnt from it.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from search_spaces import Scalar, SearchSpace
from service.scheduler.policy.searching.encoding import Array, Encoding

DATA = Path(__file__).parents[1] / "data"


@dataclass(frozen=True, slots=True)
class Row:
    """One configuration and its curve."""

    parameters: Mapping[str, Scalar]
    curve: tuple[float, ...]
    """The validation loss after each unit; shorter if the run diverged."""
    diverged: bool

    def to_json(self) -> dict[str, Any]:
        return {"parameters": dict(self.parameters), "curve": list(self.curve), "diverged": self.diverged}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Row:
        return cls(data["parameters"], tuple(data["curve"]), data["diverged"])


@dataclass(frozen=True, slots=True)
class Table:
    """The curves of one task."""

    space: SearchSpace
    num_units: int
    rows: tuple[Row, ...]


def write_table(name: str, space: SearchSpace, num_units: int, rows: Sequence[Row]) -> int:
    """Writes the table; its size in bytes."""
    (DATA / f"{name}.space.json").write_text(json.dumps(space.to_json(), indent=1) + "\n")
    data = {"num_units": num_units, "rows": [row.to_json() for row in rows]}
    # No time stamp: the same rows give the same file.
    packed = gzip.compress(json.dumps(data, separators=(",", ":")).encode(), compresslevel=9, mtime=0)
    path = DATA / f"{name}.curves.json.gz"
    path.write_bytes(packed)
    return len(packed)


def read_table(name: str) -> Table:
    """The table of that name.

    Raises:
        FileNotFoundError: there is none.
    """
    space = SearchSpace.from_json(json.loads((DATA / f"{name}.space.json").read_text()))
    data = json.loads(gzip.decompress((DATA / f"{name}.curves.json.gz").read_bytes()))
    return Table(space, data["num_units"], tuple(Row.from_json(row) for row in data["rows"]))


class TableObjective:
    """A table as a function of any configuration: the real curve of the nearest row.

    Rows are near if they agree in the parameters that matter: differences are weighted by the importance that a forest
    of extremely randomised trees (Geurts et al., 2006) finds for the final loss. Nothing is smoothed or made up, so the
    noise, the crossings and the divergence of the real runs stay; a divergence is a NaN after the curve.
    """

    def __init__(self, table: Table) -> None:
        self._encoding = Encoding(table.space)
        self._curves = [[*row.curve, math.nan] if row.diverged else list(row.curve) for row in table.rows]
        features = self._features([row.parameters for row in table.rows])
        best_to_worst = np.argsort([math.inf if row.diverged else row.curve[-1] for row in table.rows])
        ranks = np.empty(len(table.rows))
        ranks[best_to_worst] = np.arange(len(table.rows))
        from sklearn.ensemble import ExtraTreesRegressor  # a second that every process of a run would pay

        forest = ExtraTreesRegressor(200, min_samples_leaf=3, random_state=0).fit(features, ranks)
        self._weights = np.sqrt(forest.feature_importances_)
        self._tree = cKDTree(features * self._weights)

    def __call__(self, config: Mapping[str, Scalar]) -> list[float]:
        return list(self._curves[self.nearest(config)])

    def nearest(self, config: Mapping[str, Scalar]) -> int:
        """The index of the row whose curve is the config's."""
        _, nearest = self._tree.query(self._features([config])[0] * self._weights)
        return int(nearest)

    def _features(self, configs: Sequence[Mapping[str, Scalar]]) -> Array:
        return self._encoding.features(np.array([self._encoding.encode(config) for config in configs]))


@cache
def table_objective(name: str) -> TableObjective:
    """The objective of the table of that name."""
    return TableObjective(read_table(name))


def digits_convnet(config: Mapping[str, Scalar]) -> list[float]:
    """Validation loss of the tiny convolutional network on the handwritten digits; minimise."""
    return table_objective("digits-convnet")(config)


def stdlib_gpt(config: Mapping[str, Scalar]) -> list[float]:
    """Validation loss of the tiny GPT on the standard library's source; minimise."""
    return table_objective("stdlib-gpt")(config)


def digits_autoencoder(config: Mapping[str, Scalar]) -> list[float]:
    """Validation loss of the small autoencoder on the handwritten digits; minimise."""
    return table_objective("digits-autoencoder")(config)
