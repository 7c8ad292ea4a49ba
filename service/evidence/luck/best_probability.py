"""The probability that each config of a side which was trained again is the best of them.

It counts the luck of seeds (`true_means`). Pure, in the standard library alone.
"""

from __future__ import annotations

import random
from collections import Counter

from service.domain import Direction
from service.evidence.luck.searched_side import SearchedSide
from service.evidence.luck.true_means import draw_means

NUM_DRAWS = 1000
"""Draws of the true values: a probability is off by a standard error of at most 0.016, below what is worth telling."""


def best_probabilities(side: SearchedSide, direction: Direction, *, num_draws: int = NUM_DRAWS) -> dict[int, float]:
    """The probability of each repeated config, by the number of its trial; they add up to 1.

    Best is which has the best mean over all seeds. The same values give the same probabilities, to about 0.016.

    Raises:
        NoNoise: no config was trained with two new seeds.
    """
    rng = random.Random(0)
    counts: Counter[int] = Counter()
    for draw in draw_means(side, direction, rng, num_draws):
        counts[min(side.repeats, key=draw.means.__getitem__)] += 1
    return {number: counts[number] / num_draws for number in side.repeats}
