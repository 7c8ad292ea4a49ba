"""Configs that did worse over new seeds than when they were found: pure functions of plain values.

The best of many trials is a lucky one, so a little worse is the rule. One that does far worse concerns the verdict.
"""

from __future__ import annotations

import math

from service.domain import Direction
from service.evidence.best_values import BestTrial, best_of
from service.evidence.caveat_kinds import Caveat, CaveatKind
from service.evidence.in_words.told_interval import told_further
from service.evidence.in_words.wording import number, optimizer_title, spread
from service.evidence.types import ConfirmationResult, ConfirmedConfig, Winner

LARGE = 0.1
"""Loss of a config, as a share of what it had when found, that is told even where it may be chance."""


def setback_words(
    whose: str, config: ConfirmedConfig, best: BestTrial, *, result: ConfirmationResult, direction: Direction
) -> str | None:
    """Says that the value a config was found with was luck; None: it was not, or by no more than chance and `LARGE`.

    Where the value is no outlier of its seeds (`ConfirmedConfig.was_lucky`), and a large share of it is lost all the
    same, the seeds do not tell.

    Args:
        whose: what the config is to the verdict, e.g. `The recommended config (Shampoo, trial 8)`.
        best: the config's value over the new seeds.
    """
    found = config.found_value
    if config.mean is None or not direction.is_better(found, than=config.mean):
        return None
    share = abs(config.mean - found) / abs(found) if found else math.inf
    was_lucky = config.was_lucky(direction)
    if not was_lucky and share <= LARGE:
        return None
    deviation = "" if best.standard_deviation is None else f" {spread(best.standard_deviation)}"
    has = f"it has {number(best.value)}{deviation} ({best.basis})"
    further = told_further(result, config)
    if not was_lucky or further is None:
        return (
            f"{whose}: its search value {number(found)} may have been luck: {has}, and {best.num_new_seeds} seeds with "
            "this spread do not tell."
        )
    return (
        f"{whose}: its search value {number(found)} was luck: {has}, and by these seeds another would lie between "
        f"{number(further[0])} and {number(further[1])} ({result.confidence:.0%} interval)."
    )


def setback_caveats(
    result: ConfirmationResult, best: Winner, baseline: Winner | None, direction: Direction
) -> list[Caveat]:
    """Caveats on the compared configs that did worse over the new seeds than when they were found."""
    by_number = {config.number: config for config in result.configs}
    caveats = []
    for role, winner in (("recommended", best), ("baseline's", baseline)):
        config = None if winner is None else by_number.get(winner.number)
        if winner is None or config is None:
            continue
        whose = f"The {role} config ({optimizer_title(winner.optimizer)}, trial {winner.number})"
        confirmed = best_of(result, winner)
        told = setback_words(whose, config, confirmed, result=result, direction=direction)
        caveats += [] if told is None else [Caveat(CaveatKind.SETBACK, told, winner.number)]
    return caveats
