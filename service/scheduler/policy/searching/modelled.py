"""The trials of an `auto` search as its model knows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import ndtr

from search_spaces import Scalar
from service.scheduler.policy.searching.curve_model import Posterior
from service.scheduler.policy.searching.encoding import Array
from service.scheduler.policy.searching.phase_search import SearchStatus
from service.scheduler.policy.searching.trends import Points


@dataclass(slots=True)
class ModelledTrial:
    number: int
    parameters: Mapping[str, Scalar]
    vector: Array
    branch: tuple[float, ...]
    """The positions of the choices that open others, as that of a family's member; empty where there are none."""
    goal: int
    """The step at which it is paused next, or its last."""
    status: SearchStatus = SearchStatus.RUNNING
    curve: list[tuple[int, float]] = field(default_factory=list)
    early: Points = ()
    """The points up to the first rung, once it is there."""
    final: float | None = None
    failed: bool = False
    """Its parameters made it fail."""
    forgotten: bool = False
    """It teaches nothing (an error ended it early), or nothing new."""
    mean: float = 0.0
    """The final value last expected of it, on the model's scale."""

    @property
    def reached(self) -> int:
        return self.curve[-1][0] if self.curve else 0


@dataclass(frozen=True, slots=True)
class ModelView:
    """The model's view of the trials at the moment."""

    trials: list[ModelledTrial]
    """The trials that it knows, in the order of the arrays."""
    posterior: Posterior
    vectors: Array
    mean: Array
    deviation: Array
    """(n,) of final values."""
    best: float | None
    """Best final value of a finished trial."""
    twins: frozenset[int]
    """Numbers of the paused trials whose ends are known."""

    @property
    def incumbent(self) -> float:
        """The value to improve on: before anything is finished, that of an average config."""
        return float(np.median(self.mean)) if self.best is None else self.best

    @property
    def paused(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Indices of the paused trials whose ends are not known."""
        is_paused = [trial.status is SearchStatus.PAUSED and trial.number not in self.twins for trial in self.trials]
        return np.flatnonzero(is_paused)

    @property
    def chances(self) -> Array:
        """(n,), how probably each ends better than the incumbent."""
        found: Array = ndtr((self.mean - self.incumbent) / self.deviation)
        return found
