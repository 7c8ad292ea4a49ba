"""The probability that each choice of the parameter that a space branches by would do best if it were searched alone,
as the members of Shampoo's family.

The best config of a search says little of that: each choice had few of its trials, and the best of few is a matter of
luck. Which choice holds it is mostly known, and mostly not what a user asks, who goes on with one choice.

**The model.** The trials of a choice are taken for independent draws of its configs. Near the optimum the share of
configs within t of it grows as t to the power `TAIL_SHAPE`, as in `search_luck`. So the best of few lies somewhere in
the distribution, and the best of many near its end: its place is that of the smallest of as many uniform draws. A
search of the choice alone, with as many trials as the whole search had, goes on to the place that so many reach on
average. How much better that is, the scale tells: that of all trials, and of each choice another one, by a factor that
is unknown. What seeds and stopped trials leave open is drawn as well. Pure, in the standard library alone.
`tests.benchmarks.answers.member_calibration` holds the probabilities against searches of each choice alone.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from search_spaces import Scalar
from service.domain import Direction
from service.evidence.luck.expected_ends import expected_ends
from service.evidence.luck.search_luck import TAIL_SHAPE
from service.evidence.luck.searched_side import SearchedSide, TriedTrial
from service.evidence.luck.true_means import NoNoise, draw_means

NUM_DRAWS = 1000
"""A probability is off by a standard error of at most 0.016, below what is worth telling."""
SCALE_DOUBT = 1.0
"""Standard deviation of the logarithm of a choice's scale over that of all."""
NUM_BEFORE = 2
"""Draws that the first trial of a choice is worth besides itself: it is no random config but the defaults. This and
`SCALE_DOUBT` were chosen by the score of the probabilities on all landscapes of the benchmark: without any one of them,
2 to 4 and 1.0 to 1.4 would have been, whose scores differ by at most 1%."""


def choice_probabilities(
    trials: Sequence[TriedTrial],
    choices: Mapping[int, Scalar],
    direction: Direction,
    *,
    all_choices: Sequence[Scalar],
    side: SearchedSide | None = None,
    num_draws: int = NUM_DRAWS,
) -> dict[Scalar, float]:
    """The probability that each choice, searched alone with as many trials, would do best; they add up to 1.

    Best is whose search ends, on average, with the config of the best mean over seeds. A choice that was not tried may
    be as good as any that was. The same values give the same probabilities, to about 0.016.

    Args:
        trials: the search's trials.
        choices: the choice of each trial, by its number.
        side: the search with its best configs trained again; None: none was.

    Returns:
        Nothing if fewer than two trials have a value, or none completed.
    """
    counts = Counter(choices[trial.number] for trial in trials)
    rng = random.Random(0)
    wins: Counter[Scalar] = Counter()
    for means in _drawn_means(trials, direction, rng, side, num_draws):
        wins[_best(means, choices, counts, all_choices, rng)] += 1
    return {choice: wins[choice] / num_draws for choice in all_choices} if wins else {}


def _drawn_means(
    trials: Sequence[TriedTrial], direction: Direction, rng: random.Random, side: SearchedSide | None, num_draws: int
) -> Iterator[dict[int, float]]:
    """Draws of the means of the trials, smaller is better; where the luck of seeds is unknown, of their ends alone."""
    sign = 1.0 if direction is Direction.MINIMIZE else -1.0
    ends = expected_ends(trials, direction)
    completed = [sign * ends[own.number].value for own in trials if own.number in ends and own.has_completed]
    if not completed or len(ends) < 2:
        return
    best = sign * min(completed)
    of_ends = [{number: sign * end.value for number, end in ends.items()}] * num_draws
    drawn: Sequence[Mapping[int, float]] = of_ends
    if side is not None:
        try:
            drawn = [draw.means for draw in draw_means(side, direction, rng, num_draws)]
        except NoNoise:
            drawn = of_ends
    for means in drawn:
        yield {
            number: mean + sign * (ends[number].drawn(best, direction, rng) - ends[number].value)
            for number, mean in means.items()
        }


def _best(
    means: Mapping[int, float],
    choices: Mapping[int, Scalar],
    counts: Mapping[Scalar, int],
    all_choices: Sequence[Scalar],
    rng: random.Random,
) -> Scalar:
    """The choice that does best by itself in one draw: of equal ones, any."""
    num_trials = sum(counts.values())
    values = sorted(means.values())
    scale_of_all, reached = _scale(values, num_trials), _reached(num_trials + NUM_BEFORE)
    found = {}
    for choice, num_own in counts.items():
        own = [mean for number, mean in means.items() if choices[number] == choice]
        best = min(own, default=values[-1])  # all that it tried failed
        place = 1.0 - rng.random() ** (1.0 / (num_own + NUM_BEFORE))
        scale = scale_of_all * math.exp(rng.gauss(0.0, SCALE_DOUBT))
        found[choice] = best - scale * (place ** (1.0 / TAIL_SHAPE) - reached)
    tried = list(found.values())
    found |= {choice: rng.choice(tried) for choice in all_choices if choice not in found}
    return min(all_choices, key=lambda choice: (found[choice], rng.random()))


def _scale(values: Sequence[float], num_trials: int) -> float:
    """The distance of configs from each other: from the best value to the median, over the same by their places.

    Args:
        values: the best ones of `num_trials`, in order; two or more.
    """
    middle = max(1, (len(values) - 1) // 2)
    first, last = (math.pow(rank / (num_trials + 1), 1.0 / TAIL_SHAPE) for rank in (1, middle + 1))
    return (values[middle] - values[0]) / (last - first)


def _reached(num: int) -> float:
    """The mean of u to the power 1 / `TAIL_SHAPE`, where u is the smallest of `num` uniform draws."""
    power = 1.0 / TAIL_SHAPE
    return math.exp(math.lgamma(1.0 + power) + math.lgamma(num + 1.0) - math.lgamma(num + 1.0 + power))
