"""The choice among the configs that are trained again: one rule for the policy that trains them and for the evidence.

Some new seeds choose one config of the search's best and one of all baselines' best, and the others compare the two:
the best of several is a lucky one, and what chose it says too much of it.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from service.domain import Direction

Outcomes = Mapping[int, Mapping[int, float | None]]
"""The objective of each config by seed, by the number of the trial that found the config; None: it failed. A seed with
which it has not been trained to the end is not there."""


def num_choosing(*, top_k: int, num_seeds: int, num_baselines: int = 1) -> int:
    """The number of new seeds that choose: a quarter of all, at least one; none where there is nothing to choose."""
    return 0 if top_k == 1 and num_baselines <= 1 else max(1, num_seeds // 4)


def preferred(
    configs: Sequence[int], outcomes: Outcomes, *, choosing: Sequence[int], direction: Direction
) -> list[int]:
    """The configs that may stand for all of them, the best mean over the choosing seeds first.

    A config that failed with any new seed, a comparing one too, has given way; one that was not trained with every
    choosing seed is left out. Equal means go by the order of `configs`.

    Args:
        configs: the configs of the search, or of all baselines; the best found value first.
    """
    sign = 1.0 if direction is Direction.MINIMIZE else -1.0
    means: dict[int, float] = {}
    for number in configs:
        own = outcomes.get(number, {})
        values = [value for seed in choosing if (value := own.get(seed)) is not None]
        if None not in own.values() and len(values) == len(choosing):
            means[number] = sign * statistics.fmean(values) if values else 0.0
    return sorted(means, key=lambda number: means[number])
