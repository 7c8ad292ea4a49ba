"""The trials of a side that can be compared, and their standings."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_spaces import SearchSpace, SpaceError
from service.domain import Direction, FailureReason, TrialState

MAX_TRIALS = 600
"""Trials of a side that are looked at: more would change the results little, and take longer."""

Standings = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TrialDevices:
    """The devices that a trial trained on."""

    device: str
    """`cpu` or `cuda`."""
    device_name: str | None
    """The GPU as CUDA calls it; None on the CPU."""
    world_size: int


@dataclass(frozen=True, slots=True)
class EndedTrial:
    """A trial of a search or a baseline that has ended."""

    id: str
    number: int
    state: TrialState
    reason: FailureReason | None
    parameters: Mapping[str, Any]
    """{parameter name: sampled value}"""
    value: float | None
    """The objective when it was last measured."""
    progress: float
    """The share of its training that it completed, 0 to 1."""
    confirmed: Mapping[int, float | None] = field(default_factory=dict)
    """The values of its config with new seeds, by seed; None: that training failed."""
    seconds_per_step: float | None = None
    """The mean over its training; None: not measured, or the trial is a fork, which began with steps of another
    config."""
    place: TrialDevices | None = None
    """None: it was never measured."""
    fingerprint: str | None = None
    """The fingerprint of its model; None like `place`."""
    state_bytes: float | None = None
    """Memory of the optimizer's state on the rank with the most; None like `place`."""

    @property
    def has_diverged(self) -> bool:
        return self.reason is FailureReason.DIVERGED

    @property
    def has_value(self) -> bool:
        """True if its value is that of a whole training."""
        return self.state is TrialState.COMPLETED and self.value is not None

    @property
    def says_something(self) -> bool:
        """True if it says something about the objective: lost or cancelled trials do not, nor those that ran out of
        memory."""
        return self.state in (TrialState.COMPLETED, TrialState.PRUNED) or self.has_diverged


def compared(trials: Sequence[EndedTrial], space: SearchSpace) -> list[EndedTrial]:
    """The trials that say something about the objective, with values that the space knows."""
    return [trial for trial in trials if trial.says_something and _is_of(space, trial.parameters)]


def _is_of(space: SearchSpace, parameters: Mapping[str, Any]) -> bool:
    try:
        space.check(parameters, beyond_bounds=True)
    except SpaceError:
        return False
    return True


def sampled(trials: Sequence[EndedTrial], *, at_most: int, seed: int = 0) -> list[EndedTrial]:
    """`at_most` of the trials by chance, the same ones each time."""
    if len(trials) <= at_most:
        return list(trials)
    chosen = random.Random(seed).sample(range(len(trials)), at_most)
    return [trials[index] for index in sorted(chosen)]


def standings(trials: Sequence[EndedTrial], direction: Direction) -> Standings:
    """The standing of each trial, 0 the worst to 1 the best; equals share theirs.

    Completed trials are ordered by their value. Below them are the pruned ones: those that got further first, and the
    better ones among equals. Diverged trials are last, and equal.
    """
    sign = -1.0 if direction is Direction.MINIMIZE else 1.0

    def key(trial: EndedTrial) -> tuple[int, float, float]:
        if trial.has_diverged:
            return 0, 0.0, 0.0
        goodness = -np.inf if trial.value is None else sign * trial.value
        return (2, 1.0, goodness) if trial.has_value else (1, trial.progress, goodness)

    keys = [key(trial) for trial in trials]
    places = {found: place for place, found in enumerate(sorted(set(keys)))}
    return ranks(np.array([places[found] for found in keys], dtype=float))


def ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The ranks of values as shares: 0 the lowest, 1 the highest; equals get the mean of theirs."""
    if len(values) < 2:
        return np.full(len(values), 0.5)
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    means = ends - (counts + 1) / 2
    found: NDArray[np.float64] = means[inverse] / (len(values) - 1)
    return found


def rank_correlation(a: NDArray[np.float64], b: NDArray[np.float64]) -> float | None:
    """Spearman's rank correlation, -1 to 1; None: one of the two does not vary."""
    first, second = ranks(a), ranks(b)
    if len(a) < 3 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return None
    return float(np.corrcoef(first, second)[0, 1])
