"""The confirmation: configs that are trained again with new seeds, when search and baseline have ended.

Pure, like the policy that consults it: the same history gives the same order, so a job goes on after an interruption.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from search_spaces import Scalar
from service.domain import Direction, Phase
from service.scheduler.policy.protocol import Repeats


class Confirmation:
    """The `top_k` best configs of the search, and the best of the baseline, each with each of the seeds.

    Only completed trials count; if fewer than `top_k` completed, those are all. Of trials with equal parameters the
    best one stands for all. The order is by seed, so that whenever the time is up, all configs have had about the same
    seeds; with one seed by value, the search's first. Nothing is pruned: a mean over seeds wants every value.
    """

    def __init__(self, *, top_k: int, seeds: Sequence[int], direction: Direction) -> None:
        """Prepares a confirmation.

        Raises:
            ValueError: `top_k` is below 1, or a seed appears twice.
        """
        if top_k < 1:
            raise ValueError(f"top_k must be at least 1, got {top_k}")
        if len(set(seeds)) < len(seeds):
            raise ValueError(f"seeds must differ, got {list(seeds)}")
        self._num_configs = {Phase.SEARCH: top_k, Phase.BASELINE: 1}
        self._seeds = tuple(seeds)
        self._sign = 1.0 if direction is Direction.MINIMIZE else -1.0
        self._found: dict[int, tuple[Phase, Mapping[str, Scalar], float]] = {}
        self._begun: set[tuple[int, int]] = set()

    def add(self, number: int, phase: Phase, parameters: Mapping[str, Scalar], value: float | None) -> None:
        """Takes in a completed trial of search or baseline, with its objective; one without a finite one is passed."""
        if value is not None and math.isfinite(value):
            self._found[number] = (phase, parameters, value)

    def begin(self, repeats: Repeats) -> None:
        """Takes in that a confirmation trial began; however it ends, it is not repeated.

        Raises:
            ValueError: there was one with the same config and seed before.
        """
        key = (repeats.number, repeats.seed)
        if key in self._begun:
            raise ValueError(f"the config of trial {repeats.number} was begun with seed {repeats.seed} before")
        self._begun.add(key)

    def left(self) -> list[Repeats]:
        """The confirmation trials still to be begun, in order; it makes sense when search and baseline have ended."""
        configs = [(phase, number) for phase, count in self._num_configs.items() for number in self._best(phase, count)]
        return [
            Repeats(number, phase, seed)
            for seed in self._seeds
            for phase, number in configs
            if (number, seed) not in self._begun
        ]

    def _best(self, phase: Phase, count: int) -> list[int]:
        """The numbers of the `count` best trials of `phase`, the best first."""
        ranked = sorted((self._sign * value, number) for number, (own, _, value) in self._found.items() if own is phase)
        best: list[int] = []
        for _, number in ranked:
            if len(best) == count:
                break
            if all(self._found[number][1] != self._found[other][1] for other in best):
                best.append(number)
        return best
