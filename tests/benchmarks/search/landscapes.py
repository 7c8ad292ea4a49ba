"""Tasks on which whole jobs are simulated: learning curves that differ from seed to seed, and their true means."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping
from typing import Protocol

from search_spaces import FAMILY_PRESETS, Scalar, SearchSpace, preset
from search_spaces.shipped.shared import begun_for
from tests.benchmarks.search.curve_families import NUM_UNITS, Family, task
from tests.benchmarks.search.curve_tables import Row, Table, TableObjective
from tests.benchmarks.search.seed_tables import SIDES, SeedTable, read_seed_table

NUM_FOR_MEAN = 48
"""Seeds whose mean stands for that over all, where no table has them."""


class Landscape(Protocol):
    """The landscape that one side of a job searches; smaller is better."""

    space: SearchSpace
    num_units: int
    """Units of a whole training."""

    def curve(self, config: Mapping[str, Scalar], seed: int) -> list[float]:
        """The objective after each unit of training; shorter, with a NaN at its end, where it diverges."""

    def mean(self, config: Mapping[str, Scalar]) -> float:
        """The final value on average over all seeds with which it does not diverge; NaN: with none."""


class TableSide:
    """One side of a table of real curves: of any config, those of the nearest row.

    Which of the row's curves is trained, the seed and the row draw. So there are as many seeds as are asked for, with
    noise as the real one, but without what a seed does to all configs alike.
    """

    def __init__(self, table: SeedTable, side: str) -> None:
        self.space = table.spaces[side]
        rows = [row for row in table.rows if row.side == side]
        self._curves = [row.curves for row in rows]
        self.num_units = max(len(curve) for curves in self._curves for curve in curves if curve is not None)
        finals = [[curve[-1] for curve in curves if curve is not None] for curves in self._curves]
        self._means = [statistics.fmean(own) if own else math.nan for own in finals]
        means = [Row(row.parameters, (mean,), math.isnan(mean)) for row, mean in zip(rows, self._means, strict=True)]
        self._nearest = TableObjective(Table(self.space, 1, tuple(means))).nearest

    def curve(self, config: Mapping[str, Scalar], seed: int) -> list[float]:
        row = self._nearest(config)
        curve = self._curves[row][random.Random(f"{seed}/{row}").randrange(len(self._curves[row]))]
        return [math.nan] if curve is None else list(curve)

    def mean(self, config: Mapping[str, Scalar]) -> float:
        return self._means[self._nearest(config)]


class TableFamily:
    """All members of Shampoo's family in a table as one landscape: each config has the curves of its own preset's.

    Searches begin as jobs do, with a learning rate for the length of the table's trainings.
    """

    def __init__(self, table: SeedTable, *, num_steps: int) -> None:
        self.space = preset("family", num_steps=num_steps)
        self._sides = {name: TableSide(table, name) for name in FAMILY_PRESETS}
        for side in self._sides.values():
            side.space = begun_for(side.space, num_steps)
        self.num_units = max(side.num_units for side in self._sides.values())

    def curve(self, config: Mapping[str, Scalar], seed: int) -> list[float]:
        return self._side(config).curve(self._own(config), seed)

    def mean(self, config: Mapping[str, Scalar]) -> float:
        return self._side(config).mean(self._own(config))

    def alone(self) -> Mapping[str, TableSide]:
        """The landscape of each preset by itself, by name."""
        return self._sides

    def _side(self, config: Mapping[str, Scalar]) -> TableSide:
        (name,) = (name for name, (choices, _) in FAMILY_PRESETS.items() if choices.items() <= config.items())
        return self._sides[name]

    def _own(self, config: Mapping[str, Scalar]) -> dict[str, Scalar]:
        return {name: value for name, value in config.items() if name not in ("preconditioner", "grafting")}


class SyntheticSide:
    """A synthetic task (`curve_families`), each seed with noise of its own."""

    def __init__(self, family: Family, seed: int) -> None:
        self._task = task(family, seed)
        self.space, self.num_units = self._task.space, NUM_UNITS[family]

    def curve(self, config: Mapping[str, Scalar], seed: int) -> list[float]:
        values = [-value for value in self._task.with_seed(config, seed)]
        return values if math.isfinite(values[-1]) else [*values[:-1], math.nan]

    def mean(self, config: Mapping[str, Scalar]) -> float:
        finals = [self.curve(config, 2**31 + seed)[-1] for seed in range(NUM_FOR_MEAN)]
        finite = [value for value in finals if math.isfinite(value)]
        return statistics.fmean(finite) if finite else math.nan


def table_pair(name: str) -> tuple[Landscape, Landscape]:
    """Both sides of the table of that name: the search's and the baseline's."""
    table = read_seed_table(name)
    search, baseline = (TableSide(table, side) for side in SIDES)
    return search, baseline


def synthetic_pair(family: Family, seed: int) -> tuple[Landscape, Landscape]:
    """Two tasks of a family, as unlike each other as two draws are."""
    return SyntheticSide(family, 2 * seed), SyntheticSide(family, 2 * seed + 1)
