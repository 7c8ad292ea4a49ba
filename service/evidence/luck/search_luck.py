"""The luck of a search: what another one of the same size would have recommended, and an interval that allows for it.

An interval over seeds says how the two recommended configs differ. Searched again, both sides would have found other
configs; with few trials that matters more than the seeds. Pure, in the standard library alone.

**The model.** A search is taken for as many independent draws of configs as it has *regions*: only the best of configs
near each other counts, as a sampler that learns goes on near what it found. Where the regions' values lie in the
distribution that they come from is known up to chance: its value at them is distributed as uniform order statistics are
(David and Nagaraja, Order Statistics). Between them it is interpolated. Below the best one it goes on as near the
optimum of a smooth function of `2 * TAIL_SHAPE` parameters, where the share of configs within t of the optimum grows as
t to the power `TAIL_SHAPE` (as de Haan, Estimation of the Minimum of a Function Using Order Statistics, 1981). Another
search is as many draws from that distribution, with noise, and the same choice among the best.
`tests.benchmarks.answers.recommendation_regret` says how often the interval holds the difference that other searches
find.
"""

from __future__ import annotations

import math
import random
import statistics
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from service.domain import Direction
from service.evidence.comparison import student_t
from service.evidence.luck.expected_ends import expected_ends
from service.evidence.luck.searched_side import SearchedSide, typical_distance
from service.evidence.luck.true_means import Draw, draw_means

CONFIDENCE = 0.95
"""Confidence of the interval: the convention, and that of a comparison over seeds."""
NUM_DRAWS = 600
"""Draws of both searches, by judgement: fifteen of them lie beyond each end of the interval."""
NEAR = 0.4
"""Share of the typical distance of two random configs within which they are of one region. With less, the interval of
searches that learn is too short; with more, all are longer than need be."""
TAIL_SHAPE = 3.0
"""With less, the interval of few random trials is too short; with more, that of others is longer than need be."""
NUM_TAIL = 4
"""Regions whose spacing tells how far the distribution goes below the best one."""


@dataclass(frozen=True, slots=True)
class _Regions:
    heads: Sequence[int]
    """The number of the best trial of each, those without any value left out."""
    count: int
    """Number of all regions, those of failed trials too."""


def interval_of_searches(
    differences: Sequence[float],
    over_seeds: tuple[float, float],
    search: SearchedSide,
    baseline: SearchedSide,
    direction: Direction,
    *,
    num_draws: int = NUM_DRAWS,
) -> tuple[float, float]:
    """The interval that holds, with `CONFIDENCE`, by how much the search would be better if both were repeated.

    That is the difference of the true means, over all seeds, of the configs that two other searches of the same sizes
    would recommend by the same procedure; in units of the objective, positive where the search's is better. The same
    values give the same interval.

    Args:
        differences: those of the chosen configs by comparing seed, positive where the search's is better; two or more.
        over_seeds: the interval of the two chosen configs' difference; the result contains it.

    Raises:
        NoNoise: on one side no config was trained with two new seeds.
    """
    rng = random.Random(0)
    mean, degrees = statistics.fmean(differences), len(differences) - 1
    error = statistics.stdev(differences) / math.sqrt(len(differences))
    draws = sorted(
        mean + error * student_t.drawn(degrees, rng) + theirs - ours
        for ours, theirs in zip(
            lucks(search, direction, rng, num_draws), lucks(baseline, direction, rng, num_draws), strict=True
        )
    )
    cut = round(0.5 * (1.0 - CONFIDENCE) * num_draws)
    return min(draws[cut], over_seeds[0]), max(draws[-1 - cut], over_seeds[1])


def lucks(side: SearchedSide, direction: Direction, rng: random.Random, num_draws: int) -> Iterator[float]:
    """Draws of by how much worse the config would be that another search of the side recommends.

    Raises:
        NoNoise: no config was trained with two new seeds.
    """
    regions = _regions(side, direction)
    for draw in draw_means(side, direction, rng, num_draws):
        yield _recommended(side, regions, draw, rng) - draw.means[side.chosen]


def _regions(side: SearchedSide, direction: Direction) -> _Regions:
    sign = 1.0 if direction is Direction.MINIMIZE else -1.0
    values = {number: end.value for number, end in expected_ends(side.trials, direction).items()}
    best_first = sorted(side.trials, key=lambda own: (sign * values.get(own.number, sign * math.inf), own.number))
    reach = NEAR * typical_distance(len(side.trials[0].point))
    kept: list[tuple[float, ...]] = []
    heads = []
    for trial in best_first:
        if all(math.dist(trial.point, other) > reach for other in kept):
            kept.append(trial.point)
            if trial.number in values:
                heads.append(trial.number)
    return _Regions(heads, len(kept))


def _recommended(side: SearchedSide, regions: _Regions, draw: Draw, rng: random.Random) -> float:
    """The true mean of what another search recommends, if the truth is `draw`."""
    means = sorted(draw.means[number] for number in regions.heads if number in draw.means)
    found = _another_search(means, regions.count, rng)
    best = sorted((mean + rng.gauss(0.0, draw.noise), mean) for mean in found)[: side.top_k]
    if not side.num_choosing:
        return best[0][1]
    noise = draw.noise / math.sqrt(side.num_choosing)
    return min((mean + rng.gauss(0.0, noise), mean) for _, mean in best)[1]


def _another_search(means: Sequence[float], num_regions: int, rng: random.Random) -> list[float]:
    """The best means of another search's regions, best first; those beyond the worst of `means` are left out.

    Args:
        means: the best ones of this search's `num_regions`, best first.
    """
    count = len(means)
    known = [place ** (1.0 / TAIL_SHAPE) for place in _lowest_of_uniform(num_regions, count, rng)]
    last = min(NUM_TAIL, count) - 1
    slope = 0.0
    if last:
        first_place, last_place = ((rank / (num_regions + 1)) ** (1.0 / TAIL_SHAPE) for rank in (1, last + 1))
        slope = (means[last] - means[0]) / (last_place - first_place)
    found = []
    for uniform in _lowest_of_uniform(num_regions, count, rng):
        place = uniform ** (1.0 / TAIL_SHAPE)
        above = bisect_left(known, place)
        if above == count:
            break
        if above == 0:
            found.append(means[0] - slope * (known[0] - place))
        else:
            share = (place - known[above - 1]) / (known[above] - known[above - 1])
            found.append(means[above - 1] + share * (means[above] - means[above - 1]))
    return found or [means[-1]]


def _lowest_of_uniform(num: int, count: int, rng: random.Random) -> list[float]:
    """The `count` smallest of `num` draws from the uniform distribution on [0, 1], in order."""
    found, above = [], 1.0
    for taken in range(count):
        # Of the draws that are left, all lie above the last one.
        above *= rng.random() ** (1.0 / (num - taken))
        found.append(1.0 - above)
    return found
