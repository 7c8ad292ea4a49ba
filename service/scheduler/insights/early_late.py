"""The premise of stopping trials early: how well the objective early in a training predicts the one at its end."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from service.evidence.insights import EarlyLate
from service.scheduler.insights.compared import EndedTrial, rank_correlation
from service.specification.search.pauses import PAUSE_SHARES

MAX_TRIALS = 200
"""The number of trials whose curves are read, at most."""
MIN_TRIALS = 8
"""Least number of trials, by judgement: with fewer, the interval of a rank correlation is too wide to say anything."""
NINETY_PERCENT = 1.645
"""Standard deviations to either side of a normal distribution."""

Curve = Sequence[tuple[int, float | None]]
"""Steps, rising, and the objective measured there."""


def early_late(trials: Sequence[EndedTrial], curves: Mapping[str, Curve]) -> EarlyLate | None:
    """The rank correlation of the values at the first rung with the last ones; None: too few trials have both.

    Args:
        trials: the trials that completed.
        curves: by the id of the trial.
    """
    shares, early, late = [], [], []
    for trial in trials:
        curve = curves.get(trial.id, ())
        if not trial.has_value or not curve:
            continue
        end, last = curve[-1]
        point = next((point for point in curve if PAUSE_SHARES[0] * end <= point[0] < end), None)
        if point is None or point[1] is None or last is None:
            continue
        shares.append(point[0] / end)
        early.append(point[1])
        late.append(last)
    if len(early) < MIN_TRIALS:
        return None
    correlation = rank_correlation(np.array(early), np.array(late))
    if correlation is None:
        return None
    # Fisher's transformation, with the variance for ranks (Bonett and Wright, 2000).
    spread = NINETY_PERCENT * math.sqrt((1 + correlation**2 / 2) / (len(early) - 3))
    middle = math.atanh(max(-0.999, min(0.999, correlation)))
    low, high = math.tanh(middle - spread), math.tanh(middle + spread)
    return EarlyLate(
        share=float(np.median(shares)),
        num_trials=len(early),
        correlation=correlation,
        low=min(low, correlation),
        high=max(high, correlation),
    )
