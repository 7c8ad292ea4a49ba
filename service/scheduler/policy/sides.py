"""The sides of a job: the plan of each, and its progress."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from search_spaces import Scalar, SearchSpace
from service.domain import Direction, Side
from service.evidence.pareto_front import dominates
from service.scheduler.policy.searching.phase_search import PhaseSearch


@dataclass(frozen=True, slots=True)
class SidePlan:
    """The search of a job or one of its baselines: what it searches, how, and how many trials it gets."""

    side: Side
    space: SearchSpace
    num_trials: int
    search: Callable[[], PhaseSearch]
    """Makes its search; sides are never compared with each other."""
    pinned: tuple[Mapping[str, Scalar], ...] = ()
    """Assignments tried first, after the defaults of the space's branches, each once."""
    patience: int | None = None
    """No more trials start once this many, begun after the best one, were tried without improving on it."""
    directions: tuple[Direction, ...] = (Direction.MINIMIZE,)
    """The directions in which the objectives are better."""


@dataclass(slots=True)
class SideRun:
    """A side of a job as it stands."""

    plan: SidePlan
    pinned: tuple[dict[str, Scalar], ...]
    search: PhaseSearch
    num_started: int = 0
    num_proposed: int = 0
    """Started trials that users proposed."""
    num_running: int = 0
    """Running trials, including those that wait to continue."""
    paused: dict[int, None] = field(default_factory=dict)
    front: dict[int, tuple[float, ...]] = field(default_factory=dict)
    """Values by number of the completed trials that none betters: with one objective, the best one."""
    tried: set[int] = field(default_factory=set)
    """Numbers of the trials that were paused or have ended of themselves."""

    @property
    def has_trials_left(self) -> bool:
        """True if it may start more trials."""
        if self.num_started >= self.plan.num_trials:
            return False
        if self.plan.patience is None or not self.front:
            return True
        best = max(self.front)
        return sum(number > best for number in self.tried) < self.plan.patience

    def completed(self, number: int, values: tuple[float, ...]) -> None:
        """Takes in the objectives of a completed trial."""
        directions = self.plan.directions
        if not math.isfinite(values[0]):
            return
        whole = {kept: known for kept, known in self.front.items() if all(map(math.isfinite, known))}
        if all(map(math.isfinite, values)):
            self.front = whole
        elif whole:
            return
        else:
            # As long as no trial has all objectives, say none reaches a target, those are the best that there are.
            worst = (math.inf if direction is Direction.MINIMIZE else -math.inf for direction in directions)
            values = tuple(v if math.isfinite(v) else w for v, w in zip(values, worst, strict=True))
        if values in self.front.values():
            return
        if any(dominates(known, values, directions) for known in self.front.values()):
            return
        self.front = {kept: known for kept, known in self.front.items() if not dominates(values, known, directions)}
        self.front[number] = values

    @property
    def share(self) -> Fraction:
        """The part of its trials that it has started."""
        return Fraction(self.num_started, max(1, self.plan.num_trials))
