"""The interval that allows for the luck of a search, in words."""

from __future__ import annotations

from service.evidence.in_words.wording import signed_share

TELLING_SHARE = 1.0
"""Of the baseline's value: the ends of the interval with the luck of a search are told as far as that."""


def luck_words(low: float, high: float) -> str:
    """The interval with the luck of a search, whose ends are shares of the baseline's value.

    Where it holds 0, an end beyond `TELLING_SHARE` is not told: of a loss, all of the baseline's value is the most that
    can be gained, and who may lose as much as there is decides no otherwise if it is twenty times that.
    """
    covers = "With the luck of a search of this size, which that does not cover,"
    if low >= 0.0 or high <= 0.0:
        return f"{covers} it lies between {signed_share(low)} and {signed_share(high)}."
    if low < -TELLING_SHARE and high > TELLING_SHARE:
        return f"{covers} there are too few trials to say: the next search may as well find the opposite."
    told_low = signed_share(low) if low >= -TELLING_SHARE else f"less than {signed_share(-TELLING_SHARE)}"
    told_high = signed_share(high) if high <= TELLING_SHARE else f"more than {signed_share(TELLING_SHARE)}"
    return f"{covers} it lies between {told_low} and {told_high}."
