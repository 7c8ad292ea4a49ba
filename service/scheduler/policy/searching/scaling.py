"""The scale of the model's values: larger is better, of about unit spread, without long tails."""

from __future__ import annotations

import numpy as np

from service.scheduler.policy.searching.encoding import Array

WORST_SCALED = -3.0
"""Robust deviations below the median beyond which values count as equally bad: losses have long tails."""

DRAWN_IN = 2.0
"""The width of the bad tail on the scale, at most."""


class Scale:
    """The scale on which given values have mean 0 and deviation 1, larger is better, and the bad tail is compressed.

    It uses units of the interquartile range, so that a few runs that blew up do not squeeze all others together.
    Positive values that are minimised, such as losses, enter by their logarithm: near its floor a loss differs little
    compared with its first values, and that is where configs must be distinguished. If values span less than an order
    of magnitude, a logarithm is as good as a straight line.
    """

    def __init__(self, values: Array, *, is_minimised: bool) -> None:
        """Takes the scale from these values; NaN among them counts as worse than all."""
        self._is_minimised = is_minimised
        self._least = float(np.nanmin(values, initial=np.inf))
        turned = self._turned(values)
        known = turned[np.isfinite(turned)]
        self._centre, self._unit, self._mean, self._deviation = 0.0, 1.0, 0.0, 1.0
        if len(known):
            low, high = np.quantile(known, [0.25, 0.75])
            self._centre, self._unit = float(np.median(known)), float((high - low) / 1.35 or known.std() or 1.0)
        drawn_in = self._drawn_in(turned)
        self._mean, self._deviation = float(drawn_in.mean()), float(drawn_in.std() or 1.0)

    def __call__(self, values: Array) -> Array:
        """These or other values on the scale."""
        found: Array = (self._drawn_in(self._turned(values)) - self._mean) / self._deviation
        return found

    def back(self, scaled: Array) -> Array:
        """The values that lie there on the scale; beyond its bad end, those at it."""
        found = scaled * self._deviation + self._mean
        below = -np.expm1(np.clip(WORST_SCALED - found, 0.0, DRAWN_IN))
        turned = np.where(found < WORST_SCALED, WORST_SCALED + below, found) * self._unit + self._centre
        values: Array = np.exp(-turned) if self._is_logarithmic else -turned if self._is_minimised else turned
        return values

    @property
    def _is_logarithmic(self) -> bool:
        return self._is_minimised and self._least > 0

    def _turned(self, values: Array) -> Array:
        if self._is_logarithmic:
            logarithms: Array = -np.log(np.maximum(values, self._least))
            return logarithms
        return -values if self._is_minimised else values

    def _drawn_in(self, turned: Array) -> Array:
        scaled = np.where(np.isfinite(turned), (turned - self._centre) / self._unit, -np.inf)
        below = np.minimum(scaled - WORST_SCALED, 0.0)
        found: Array = np.where(below < 0, WORST_SCALED - np.minimum(np.log1p(-below), DRAWN_IN), scaled)
        return found
