"""The objective that each trial of a search would have on average over seeds: draws of what the values leave open.

A trial's value is its config's mean over seeds plus the luck of one seed; of the best configs there are values with new
seeds as well. From both follows, for every trial, a distribution of its mean. Pure, in the standard library alone: the
API loads no numerical package.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from service.domain import Direction
from service.evidence.luck.expected_ends import expected_ends
from service.evidence.luck.searched_side import SearchedSide

MAX_RANKS = 48
"""Trials that are drawn, the best ones by value: what a search recommends is among them."""
HALF_VARIANCE = 1.0 - 2.0 / math.pi
"""Variance of the better half of a normal sample, as a share of the variance of the whole."""

MIN_KEPT = 0.1
"""Share of the spread of values that at least is none of the seeds': with few trials it is not known well."""


class NoNoise(ValueError):
    """No config has two values with new seeds: the luck of a seed is unknown."""


@dataclass(frozen=True, slots=True)
class Draw:
    """One of the possible truths of a search; smaller is better."""

    means: Mapping[int, float]
    """Means over seeds, by number of the trial."""
    noise: float
    """The standard deviation of a config's objective over seeds."""


@dataclass(frozen=True, slots=True)
class _Model:
    """A search as its model sees it, trials by rank; smaller is better."""

    numbers: Sequence[int]
    found: Sequence[float]
    repeats: Mapping[int, Sequence[float]]
    """Values with new seeds, by rank."""
    spread: float
    """The variance of a normal sample whose better half is the search's."""


def draw_means(side: SearchedSide, direction: Direction, rng: random.Random, num_draws: int) -> Iterator[Draw]:
    """Draws of the means of a search's `MAX_RANKS` best trials, those of the repeated ones included.

    The noise over seeds is taken to be normal and of one spread, drawn from its posterior by the values with new seeds.
    It explains a share of the spread of the search's values: by so much their means lie nearer together than they do.
    All of them are moved by as much as the repeated configs moved, on average, to their values with new seeds, as those
    were lucky, and all had the search's one seed. That is the prior of each mean; with the values of a repeated config
    it gives the posterior (of normal means with normal noise: Efron, Large-Scale Inference, section 1.1).

    Raises:
        NoNoise: no config was trained with two new seeds.
    """
    model = _model(side, direction)
    own_means = {rank: statistics.fmean(own) for rank, own in model.repeats.items()}
    squares = math.fsum((value - own_means[rank]) ** 2 for rank, own in model.repeats.items() for value in own)
    num_values = sum(map(len, model.repeats.values()))
    degrees = num_values - len(model.repeats)
    if not degrees:
        raise NoNoise(f"no config was trained with two new seeds: {dict(side.repeats)}")
    for _ in range(num_draws):
        variance = squares / (2.0 * rng.gammavariate(0.5 * degrees, 1.0))
        kept = max(MIN_KEPT, 1.0 - variance / model.spread) if model.spread > 0.0 else MIN_KEPT
        moved = math.fsum(len(own) * (own_means[r] - kept * model.found[r]) for r, own in model.repeats.items())
        means = {}
        for rank, (number, value) in enumerate(zip(model.numbers, model.found, strict=True)):
            mean, left = moved / num_values + kept * value, kept * variance
            if rank in own_means:
                num_own = len(model.repeats[rank])
                weight = kept / (kept + 1.0 / num_own)
                mean, left = mean + weight * (own_means[rank] - mean), weight * variance / num_own
            means[number] = rng.gauss(mean, math.sqrt(left))
        yield Draw(means, math.sqrt(variance))


def _model(side: SearchedSide, direction: Direction) -> _Model:
    sign = 1.0 if direction is Direction.MINIMIZE else -1.0
    found = {number: sign * end.value for number, end in expected_ends(side.trials, direction).items()}
    ranked = sorted(found, key=lambda number: (found[number], number))
    half = [found[number] for number in ranked[: max(2, len(side.repeats), (len(ranked) + 1) // 2)]]
    # One that was repeated is mostly among the best; with pruned trials expected to be better, it may not be.
    numbers = ranked[:MAX_RANKS] + [number for number in ranked[MAX_RANKS:] if number in side.repeats]
    return _Model(
        numbers,
        [found[number] for number in numbers],
        {rank: [sign * v for v in side.repeats[own]] for rank, own in enumerate(numbers) if own in side.repeats},
        statistics.variance(half) / HALF_VARIANCE if len(half) > 1 else 0.0,
    )
