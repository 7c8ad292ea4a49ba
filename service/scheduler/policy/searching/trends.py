"""The rise of curves where they were paused, compared with each other.

If two configs have equal early values, the one that still learns faster mostly ends better. This module measures how
fast, and removes the part that noise alone would explain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from service.scheduler.policy.searching.encoding import Array

Points: TypeAlias = Sequence[tuple[float, float]]
"""Distances from the end, falling, and the values measured there."""
WINDOW_SHARE = 0.5
"""Share of a curve's points that count, the last ones: earlier ones show how training began rather than how it
continues."""
MIN_POINTS = 3
"""Fewest points for a trend: two points cannot distinguish it from noise."""
KEPT_MEAN, KEPT_DEVIATION = 0.2, 0.3
"""Mean and standard deviation of the share of a trend that is kept: were curves straight in the logarithm of time, it
would be 1; they flatten."""
GAIN_DEVIATION = 0.5
"""Standard deviation of gains that trends do not explain, on the model's scale."""
MIN_FINISHED = 3
"""Fewest finished trials that say something of the share that is kept, by judgement."""
LIMIT = 2.0
"""Largest trend, up or down, on the model's scale: a steep one does not last."""


def trends(curves: Sequence[Points], scale: Callable[[Array], Array]) -> Array:
    """(curves,) what each gains per unit of distance beyond the median curve; 0 where that is not known.

    A trend is the slope of a straight line through the window. Noise makes slopes differ too: by its residuals, each
    line tells how much, and all trends are multiplied by the share of their variance that noise does not explain (the
    reliability by which errors in a regressor attenuate its effect).

    Args:
        curves: empty for a config that has none.
        scale: turns values, of any shape, into the model's, where larger is better.
    """
    alike: dict[tuple[float, ...], list[int]] = {}
    for index, curve in enumerate(curves):
        window = curve[-max(MIN_POINTS, math.ceil(len(curve) * WINDOW_SHARE)) :]
        if len(window) >= MIN_POINTS:
            alike.setdefault(tuple(distance for distance, _ in window), []).append(index)
    slopes, variances = np.full(len(curves), np.nan), np.full(len(curves), np.nan)
    for distances, indices in alike.items():
        centred = np.array(distances) - np.mean(distances)
        values = scale(np.array([[value for _, value in curves[index][-len(distances) :]] for index in indices]))
        values -= values.mean(axis=1, keepdims=True)
        rises = values @ centred / (centred @ centred)
        residuals = values - rises[:, None] * centred
        slopes[indices] = -rises
        variances[indices] = np.square(residuals).sum(axis=1) / (len(distances) - 2) / (centred @ centred)
    if not alike:
        return np.zeros(len(curves))
    low, middle, high = np.nanquantile(slopes, [0.25, 0.5, 0.75])
    variance = ((high - low) / 1.35) ** 2
    reliability = max(0.0, 1.0 - float(np.nanmedian(variances)) / variance) if variance > 0 else 0.0
    found: Array = np.nan_to_num(reliability * np.clip(slopes - middle, -LIMIT, LIMIT))
    return found


def kept_share(trend: Array, gain: Array) -> float:
    """The share of its trend that a curve keeps up to the end: ridge regression of gains on trends, within 0 and 1.

    Only finished trials count. Trends correlate with the quality of a config, so a model that may choose the share from
    all early values would explain these by trends, and no longer by configs.

    Args:
        trend: (n,) of finished trials.
        gain: (n,) from their first rung to the end, on the model's scale.
    """
    if len(trend) < MIN_FINISHED:
        return KEPT_MEAN
    trend, gain = trend - trend.mean(), gain - gain.mean()
    precision = (GAIN_DEVIATION / KEPT_DEVIATION) ** 2
    return float(np.clip((precision * KEPT_MEAN + trend @ gain) / (precision + trend @ trend), 0.0, 1.0))
