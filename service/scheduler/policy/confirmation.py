"""The confirmation: configs that are trained again with new seeds, when search and baselines have ended.

Pure, like the policy that uses it: the same history gives the same order, so a job continues after an interruption.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from search_spaces import Scalar, SearchSpace
from service.domain import Direction, Phase, Side, TrialState, phase_of
from service.evidence.comparison.finalists import preferred
from service.evidence.comparison.paired import is_settled
from service.evidence.types import EQUAL_WITHIN
from service.scheduler.policy.candidates import Candidate, chosen_candidates
from service.scheduler.policy.protocol import Repeats

_RIVALS = (Phase.SEARCH, Phase.BASELINE)


@dataclass(frozen=True, slots=True)
class _Found:
    side: Side
    candidate: Candidate


class Confirmation:
    """The `top_k` best configs of the search and as many of each baseline, trained again in two stages; those that
    differ are preferred (`candidates.chosen_candidates`).

    First, all of them are trained with the choosing seeds. Then the best of the search and the best of all baselines,
    by their means over these seeds, are trained with the comparing seeds. Only the comparing seeds say how the two
    differ. If a config fails, the next one replaces it, in search and baselines alike. Once the comparing seeds
    contradict each other so much that no verdict is possible, no more are begun.

    Only completed trials count; if fewer than `top_k` completed, all of these are used. The order is by seed, so that
    all configs have had about the same seeds whenever the time is up; for one seed it is by value, the search's first.
    Nothing is pruned, because a mean over seeds needs every value.
    """

    def __init__(
        self,
        *,
        top_k: int,
        choosing: Sequence[int],
        comparing: Sequence[int],
        direction: Direction,
        stops_early: bool = True,
        spaces: Mapping[Side, SearchSpace] | None = None,
    ) -> None:
        """Prepares a confirmation.

        Args:
            choosing: the seeds that choose; empty: the config with the best value is chosen.
            comparing: the seeds that compare.
            stops_early: False: all comparing seeds are trained, because the verdict is about other values than the last
                ones.
            spaces: the sides' spaces, which say how configs differ; for a side without one, only values count.

        Raises:
            ValueError: `top_k` is below 1, or a seed appears twice.
        """
        if top_k < 1:
            raise ValueError(f"top_k must be at least 1, got {top_k}")
        if len({*choosing, *comparing}) < len(choosing) + len(comparing):
            raise ValueError(f"seeds must differ, got {[*choosing, *comparing]}")
        self._top_k = top_k
        self._choosing, self._comparing = tuple(choosing), tuple(comparing)
        self._direction = direction
        self._stops_early = stops_early
        self._spaces = spaces or {}
        self._sign = 1.0 if direction is Direction.MINIMIZE else -1.0
        self._found: dict[int, _Found] = {}
        self._chosen: dict[Side, list[int]] = {}
        """The choices of each side that was asked for, until another trial of the side completes."""
        self._begun: set[tuple[int, int]] = set()
        self._outcomes: dict[int, dict[int, float | None]] = {}
        self._cancelled: set[tuple[int, int]] = set()

    def add(self, number: int, side: Side, parameters: Mapping[str, Scalar], value: float | None) -> None:
        """Adds a completed trial of a side, with its objective; it is ignored if that is not finite."""
        if value is not None and math.isfinite(value):
            self._found[number] = _Found(side, Candidate(number, parameters, self._sign * value))
            self._chosen.pop(side, None)

    def num_lacking(self, side: Side) -> int:
        """The number of configs that a side lacks to reach `top_k`."""
        return self._top_k - len(self._best(side))

    def begin(self, repeats: Repeats) -> None:
        """Records that a confirmation trial began; however it ends, it is not repeated.

        Raises:
            ValueError: there was one with the same config and seed before.
        """
        key = (repeats.number, repeats.seed)
        if key in self._begun:
            raise ValueError(f"the config of trial {repeats.number} was begun with seed {repeats.seed} before")
        self._begun.add(key)

    def end(self, repeats: Repeats, state: TrialState, value: float | None) -> None:
        """Records how a confirmation trial ended; `value`: its objective, if it completed."""
        if state is TrialState.CANCELLED:
            self._cancelled.add((repeats.number, repeats.seed))
            return
        is_whole = state is TrialState.COMPLETED and value is not None and math.isfinite(value)
        self._outcomes.setdefault(repeats.number, {})[repeats.seed] = value if is_whole else None

    def left(self) -> list[Repeats]:
        """The confirmation trials to be begun now, in order; it makes sense when all sides have ended.

        Empty while the next stage waits for trials of this one to end, and if the search completed no trial, because
        nothing can be recommended then.
        """
        rivals = [self._candidates(phase) for phase in _RIVALS]
        if not rivals[0]:
            return []
        chosen = self._missing([number for numbers in rivals for number in numbers], self._choosing)
        if chosen or any(self._is_open(number, self._choosing) for numbers in rivals for number in numbers):
            return chosen
        finalists = [
            ranked[0]
            for numbers in rivals
            if (ranked := preferred(numbers, self._outcomes, choosing=self._choosing, direction=self._direction))
        ]
        if self._is_settled(finalists):
            return []
        return self._missing(finalists, self._comparing)

    def _missing(self, configs: Sequence[int], seeds: Sequence[int]) -> list[Repeats]:
        return [
            Repeats(number, self._found[number].side, seed)
            for seed in seeds
            for number in configs
            if (number, seed) not in self._begun and None not in self._outcomes.get(number, {}).values()
        ]

    def _is_open(self, number: int, seeds: Sequence[int]) -> bool:
        """True if a trial of the config is being trained with one of the seeds."""
        ended = self._outcomes.get(number, {})
        return any(
            (number, seed) in self._begun and (number, seed) not in self._cancelled and seed not in ended
            for seed in seeds
        )

    def _is_settled(self, finalists: Sequence[int]) -> bool:
        if len(finalists) < len(_RIVALS) or not self._stops_early:
            return False
        ours, theirs = (self._outcomes.get(number, {}) for number in finalists)
        pairs = [
            (own, other)
            for seed in self._comparing
            if (own := ours.get(seed)) is not None and (other := theirs.get(seed)) is not None
        ]
        return is_settled(
            [other - own for own, other in pairs],
            num_planned=len(self._comparing),
            equal_within=EQUAL_WITHIN * abs(sum(other for _, other in pairs)) / max(1, len(pairs)),
        )

    def _candidates(self, phase: Phase) -> list[int]:
        """The numbers of the best trials of each side of `phase`, the best of all first."""
        sides = {found.side for found in self._found.values() if phase_of(found.side) is phase}
        best = [number for side in sides for number in self._best(side)]
        return sorted(best, key=lambda number: (self._found[number].candidate.value, number))

    def _best(self, side: Side) -> list[int]:
        """The numbers of the `top_k` trials of a side whose configs are trained again."""
        if side not in self._chosen:
            own = [found.candidate for found in self._found.values() if found.side == side]
            self._chosen[side] = chosen_candidates(own, self._top_k, self._spaces.get(side))
        return self._chosen[side]
