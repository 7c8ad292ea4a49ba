"""Configs that did worse over new seeds than when they were found: pure functions of plain values.

The best of many trials is a lucky one, so a little worse is the rule. One that does far worse concerns the verdict. Of
the baseline one config alone is confirmed: if that one collapses, another of its configs might have held, and the
search looks better than it is.
"""

from __future__ import annotations

import math

from service.domain import Direction
from service.evidence.best_values import BestTrial
from service.evidence.types import EQUAL_WITHIN, ConfirmedConfig
from service.evidence.words import number, spread

LARGE = 0.1
"""Loss of a config, as a share of what it had when found, that is told even where it may be chance."""


def setback_caveat(
    whose: str, config: ConfirmedConfig, best: BestTrial, *, confidence: float, direction: Direction
) -> str | None:
    """Says that a confirmed config is worse than when found; None: it is not, or by no more than chance and `LARGE`.

    "More than the noise" is a found value beyond the interval in which a further seed's value would lie
    (`confirm.further_seed`): it was no ordinary seed of this config. The interval is the config's own, as spreads
    differ between configs, and so it is wide for few seeds: 5.0 standard deviations to either side with three, 16 with
    two. Where it holds the found value, and that is lost by a large share all the same, the seeds do not tell.

    Args:
        whose: what the config is to the verdict, e.g. `The recommended config (Shampoo, trial 8)`.
        best: the config's value over the new seeds.
    """
    found = config.found_value
    if config.mean is None or not direction.is_better(found, than=config.mean):
        return None
    share = abs(config.mean - found) / abs(found) if found else math.inf
    end = config.further_low if direction is Direction.MINIMIZE else config.further_high
    is_beyond = end is not None and direction.is_better(found, than=end) and share > EQUAL_WITHIN
    if not is_beyond and share <= LARGE:
        return None
    deviation = "" if best.standard_deviation is None else f" {spread(best.standard_deviation)}"
    values = f"{number(best.value)}{deviation} ({best.basis}), {number(found)} before."
    told = f"{whose} did worse over new seeds than when it was found"
    if not is_beyond:
        return f"{told}: {values} That may be chance: {best.num_new_seeds} seeds with this spread do not tell."
    return (
        f"{told}, by more than the noise: {values} By these seeds another would lie between "
        f"{number(config.further_low)} and {number(config.further_high)} ({confidence:.0%} interval)."
    )
