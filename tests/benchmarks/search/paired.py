"""Two policies on the same tasks with the same seeds: the ratio of their regrets, and how sure it is.

What a task and a seed do to both alike cancels, so far fewer searches tell them apart than their own means would.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Paired:
    """The regret of one policy over that of another."""

    ratio: float
    """The mean over all searches, divided by that of the other policy; NaN if this is not positive."""
    ratio_error: float
    """Standard error of the ratio, by the delta method."""
    difference: float
    """The mean of the one's regrets minus that of the other's: what says more where these come near 0, or below."""
    difference_error: float
    """Standard error of the difference."""

    @classmethod
    def of(cls, regrets: Array, others: Array) -> Paired:
        """Compares the regrets of searches, one by one.

        Args:
            regrets: (searches,).
            others: (searches,) of the same tasks with the same seeds.

        Raises:
            ValueError: they are not as many, or none.
        """
        if regrets.shape != others.shape or not len(regrets):
            raise ValueError(f"{len(regrets)} and {len(others)} searches are no pairs")
        mean, other = float(regrets.mean()), float(others.mean())
        ratio = mean / other if other > 0 else math.nan
        return cls(
            ratio,
            standard_error(regrets - ratio * others) / other if other > 0 else math.nan,
            mean - other,
            standard_error(regrets - others),
        )


def standard_error(values: Array) -> float:
    """The standard error of a mean; 0 for a single value, which says nothing of it."""
    return float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else 0.0


@dataclass(frozen=True, slots=True)
class Earlier:
    """The searches of an earlier run, to compare with."""

    regrets: Mapping[str, Array]
    """(searches, budgets) by the name under which the figures of a run have them."""

    @classmethod
    def read(cls, path: Path, seeds: Sequence[int], budgets: Sequence[float], names: Sequence[str]) -> Earlier:
        """The searches of these names that `search_quality --json` wrote.

        Raises:
            ValueError: it has none of each search, of other seeds or budgets, or not all these names.
        """
        figures = json.loads(path.read_text()).get("figures", {})
        if (figures.get("seeds"), figures.get("budgets")) != (list(seeds), list(budgets)):
            raise ValueError(f"{path} has searches of other seeds or budgets")
        missing = [name for name in names if "regrets" not in figures.get(name, {})]
        if missing:
            raise ValueError(f"{path} has no searches of {missing[0]}")
        return cls({name: np.array(figures[name]["regrets"]) for name in names})
