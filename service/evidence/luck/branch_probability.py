"""The probability that a choice which opens parameters of its own, as a member of Shampoo's family, suits best.

A choice is better than another if a search as long as the whole one, spent on it alone, would find a better config.
What its trials say of that is uncertain in three ways, and all three are drawn: the luck of seeds (`true_means`), the
ends of trials that were pruned, and the configs that were not tried (`search_luck`), which are the more, the fewer
trials a choice had. `tests.benchmarks.family_cost` says how often it is so. Pure, in the standard library alone.
"""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from search_spaces import Scalar
from service.domain import Direction
from service.evidence.luck.search_luck import Regions, best_of_another_search, regions_of, slope_of
from service.evidence.luck.searched_side import SearchedSide, TriedTrial
from service.evidence.luck.true_means import draw_means

NUM_DRAWS = 1000


@dataclass(frozen=True, slots=True)
class _Branch:
    choice: Scalar
    regions: Regions


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
    branches = _branches(side, direction, choices)
    num_regions = sum(branch.regions.count for branch in branches)
    doubts = _doubts(side)
    counts: Counter[Scalar] = Counter()
    for draw in draw_means(side, direction, rng, num_draws):
        means = {number: mean + rng.gauss(0.0, doubts.get(number, 0.0)) for number, mean in draw.means.items()}
        own = {b.choice: sorted(means[n] for n in b.regions.heads if n in means) for b in branches}
        everywhere = slope_of(sorted(mean for known in own.values() for mean in known), num_regions)
        found = {
            branch.choice: best_of_another_search(
                own[branch.choice], branch.regions.count, num_regions, rng, least_slope=everywhere
            )
            for branch in branches
            if own[branch.choice]
        }
        counts[min(found, key=found.__getitem__)] += 1
    return {branch.choice: counts[branch.choice] / num_draws for branch in branches}


def _branches(side: SearchedSide, direction: Direction, choices: Mapping[int, Scalar]) -> list[_Branch]:
    trials: dict[Scalar, list[TriedTrial]] = {}
    for trial in side.trials:
        trials.setdefault(choices[trial.number], []).append(trial)
    values = side.final_values()
    found = [_Branch(choice, regions_of(own, values, direction)) for choice, own in trials.items()]
    return [branch for branch in found if branch.regions.heads]


def _doubts(side: SearchedSide) -> dict[int, float]:
    """The standard deviation of what is left open of a pruned trial's end, by number.

    It is that of the completed trials' ends around their values where the pruned one was stopped; of one alone, as
    much as it still changed.
    """
    rests = side.rests()
    found = {}
    for trial in side.trials:
        if not trial.has_completed and trial.curve:
            known = rests.get(trial.curve[-1][0], [])
            if len(known) > 1:
                found[trial.number] = statistics.stdev(known)
            elif known:
                found[trial.number] = math.fabs(known[0])
    return found
