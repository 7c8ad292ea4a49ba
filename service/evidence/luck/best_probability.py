"""The probability of being the best of a side: of each config that was trained again, and of each choice of a parameter
that a space branches by, as the members of Shampoo's family are.

Both count the luck of seeds (`true_means`). That of a choice is of the best config tried, and counts that the ends of
stopped trials are only expected. It does not count configs that were not tried: searched alone, another choice may yet
find better ones, and `tests.benchmarks.answers.family_cost` says how often it does. Pure, in the standard library
alone.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping

from search_spaces import Scalar
from service.domain import Direction
from service.evidence.luck.expected_ends import expected_ends
from service.evidence.luck.searched_side import SearchedSide
from service.evidence.luck.true_means import draw_means

NUM_DRAWS = 1000
"""Of the true values: a probability is off by a standard error of at most 0.016, below what is worth telling."""


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


def branch_probabilities(
    side: SearchedSide,
    direction: Direction,
    choices: Mapping[int, Scalar],
    *,
    num_draws: int = NUM_DRAWS,
) -> dict[Scalar, float]:
    """The probability of each choice that a trial with a value had; they add up to 1.

    The same values give the same probabilities, to about 0.016.

    Args:
        choices: of each trial, by its number.

    Raises:
        NoNoise: no config was trained with two new seeds.
    """
    rng = random.Random(0)
    ends = expected_ends(side, direction)
    sign = 1.0 if direction is Direction.MINIMIZE else -1.0
    completed = (ends[trial.number].value for trial in side.trials if trial.number in ends and trial.has_completed)
    best = sign * min(sign * value for value in completed)
    counts: Counter[Scalar] = Counter()
    for draw in draw_means(side, direction, rng, num_draws):
        means = {
            number: mean + sign * (ends[number].drawn(best, direction, rng) - ends[number].value)
            for number, mean in draw.means.items()
        }
        counts[choices[min(means, key=means.__getitem__)]] += 1
    tried = dict.fromkeys(choices[number] for number in ends)
    return {choice: counts[choice] / num_draws for choice in tried}
