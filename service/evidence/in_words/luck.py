"""The luck of a search in words: the interval that allows for it, and how probably each config is the best."""

from __future__ import annotations

from service.evidence.in_words.wording import chance, signed_share
from service.evidence.types import Evidence

TELLING_SHARE = 1.0
"""Distance from 0, as a share of the baseline's value, up to which the ends of the interval with the luck of a search
are told."""
TELLING_CHANCE = 0.05
"""Difference of two probabilities from which one config is said to be more probably the best than another: three
standard errors of the draws that they come from."""


def luck_words(low: float, high: float) -> str:
    """The interval with the luck of a search, whose ends are shares of the baseline's value.

    Where it holds 0, an end beyond `TELLING_SHARE` is not told. A loss cannot fall by more than all of the baseline's
    value; and whoever may lose as much as that does not decide otherwise if it is twenty times as much.
    """
    covers = "With the luck of a search of this size, which that does not cover,"
    if low >= 0.0 or high <= 0.0:
        return f"{covers} it lies between {signed_share(low)} and {signed_share(high)}."
    if low < -TELLING_SHARE and high >= TELLING_SHARE:
        return f"{covers} there are too few trials to say: the next search may as well find the opposite."
    told_low = signed_share(low) if low >= -TELLING_SHARE else f"far worse (below {signed_share(-TELLING_SHARE)})"
    told_high = signed_share(high) if high <= TELLING_SHARE else f"far better (above {signed_share(TELLING_SHARE)})"
    return f"{covers} it lies between {told_low} and {told_high}."


def probability_lines(evidence: Evidence) -> list[str]:
    """Says how probably each of the search's configs is the best; nothing if that is unknown, or there is one."""
    known = _probabilities(evidence)
    if len(known) < 2:
        return []
    told = ", ".join(f"that of trial {number} ({chance(value)})" for number, value in known.items())
    less = less_probable_words(evidence)
    return [
        f"Which of the configs trained again is the best, by the seeds and the search: {told}.",
        *([] if less is None else [less]),
    ]


def less_probable_words(evidence: Evidence) -> str | None:
    """Says why a config is recommended that is less probably the best than another one; None: it is not."""
    known, recommended = _probabilities(evidence), evidence.best.number
    if evidence.confirmation is None or recommended not in known:
        return None
    likeliest = max(known, key=known.__getitem__)
    in_words = chance(known[likeliest]), chance(known[recommended])
    if known[likeliest] < known[recommended] + TELLING_CHANCE or in_words[0] == in_words[1]:
        return None
    told = (
        f"The config of trial {likeliest} is more probably the best ({in_words[0]}) than the recommended "
        f"one ({in_words[1]})"
    )
    own = next(config for config in evidence.confirmation.candidates if config.number == recommended)
    if own.choosing_mean is None:
        return f"{told}, which has the best found value: the seeds that choose were not all trained."
    why = "" if evidence.baseline is None else ", so that the comparison with the baseline is fair"
    return (
        f"{told}, which did best with the seeds that choose. They alone choose{why}: what the search and the other "
        "seeds say came into the probabilities, not into the choice."
    )


def _probabilities(evidence: Evidence) -> dict[int, float]:
    """The probability that each config of the search that was trained again is the best, by trial; the known ones."""
    configs = [] if evidence.confirmation is None else evidence.confirmation.candidates
    return {config.number: config.probability_best for config in configs if config.probability_best is not None}
