"""The best value of a job's search, and of its baseline: one number with its origin, and one way to write both.

While a job runs, it is what the best completed trial reached, with its one seed. Once the job has ended, it is what its
recommendation says: of configs that were trained again the mean over the new seeds, because the best of many trials is
a lucky one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from service.evidence.types import ConfirmationResult, Winner

DASH = "–"


@dataclass(frozen=True, slots=True)
class BestTrial:
    """The best trial of a phase, and the value that stands for its config."""

    number: int
    value: float
    """Its final value; of a config that was confirmed, the mean over the new seeds."""
    num_new_seeds: int = 0
    """Seeds that `value` is the mean over; 0: the config was not confirmed."""
    standard_deviation: float | None = None
    """Over those seeds, of the sample."""

    @property
    def basis(self) -> str:
        """How the value came about, for a person."""
        return f"mean of {self.num_new_seeds} new seeds" if self.num_new_seeds else "one seed"


class Best(Protocol):
    """A `BestTrial`, or what the API gives of one."""

    @property
    def number(self) -> int: ...
    @property
    def value(self) -> float: ...
    @property
    def num_new_seeds(self) -> int: ...
    @property
    def standard_deviation(self) -> float | None: ...
    @property
    def basis(self) -> str: ...


def best_of(result: ConfirmationResult | None, winner: Winner) -> BestTrial:
    """The best value of a phase, from the winner of it that the evidence names.

    Args:
        result: the evidence's confirmation.
    """
    for config in result.configs if result is not None else []:
        if config.number == winner.number and result is not None and config.mean is not None:
            return BestTrial(winner.number, winner.value, len(result.seeds), config.standard_deviation)
    return BestTrial(winner.number, winner.value)


def number(value: float | None, digits: int = 4) -> str:
    """A measured value with `digits` significant digits, trailing zeros kept so that columns line up."""
    if value is None or not math.isfinite(value):
        return DASH
    if 10**digits <= abs(value) < 10 ** (digits + 2):
        return f"{value:.0f}"
    return f"{value:#.{digits}g}".removesuffix(".")


def spread(standard_deviation: float) -> str:
    """A standard deviation, as it follows its mean."""
    return f"± {number(standard_deviation, 2)}"


def described(best: Best) -> str:
    """A best value with its spread and its origin: `0.07680 ± 0.00035 (mean of 3 new seeds, config of trial 8)`."""
    deviation = "" if best.standard_deviation is None else f" {spread(best.standard_deviation)}"
    whose = f"config of trial {best.number}" if best.num_new_seeds else f"trial {best.number}"
    return f"{number(best.value)}{deviation} ({best.basis}, {whose})"
