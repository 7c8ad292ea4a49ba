"""The break-even point of a job: what it cost, and what its recommended config saves of each training."""

from __future__ import annotations

import math

from service.clock import SECONDS_PER_HOUR
from service.evidence.in_words.speed import OnTheClock, on_the_clock
from service.evidence.types import BreakEven, Evidence


def break_even_of(evidence: Evidence, *, spent_seconds: float, num_ranks: int) -> BreakEven | None:
    """The trainings after which a job has paid; None: its config is not faster to the baseline's best, or only by one
    seed.

    Args:
        spent_seconds: time that all trials of the job trained.
        num_ranks: ranks of a trial, each a device.
    """
    reached = evidence.reached_baseline
    if reached is None or reached.seconds_ratio is None or reached.seconds_ratio_low is None:
        return None
    if on_the_clock(evidence) is not OnTheClock.FASTER:
        return None
    share = 1 - 1 / reached.seconds_ratio
    saved = reached.baseline_seconds * share
    if saved <= 0:
        return None
    hours = num_ranks / SECONDS_PER_HOUR
    return BreakEven(spent_seconds * hours, saved * hours, share, max(1, math.ceil(spent_seconds / saved)))
