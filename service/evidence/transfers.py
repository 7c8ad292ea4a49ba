"""Configs that the sides of a job were given to begin with, and the results of those moved from other models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.domain import Direction, Phase, TrialState
from service.evidence.finished_trial import FinishedTrial


@dataclass(frozen=True, slots=True)
class MovedStart:
    """A config of a tuned model like the job's, moved to it, with which its search began."""

    source: str
    """The model that it was tuned for, for a person."""
    distance: float
    """Octaves between the two models."""
    parameters: Mapping[str, Any]
    """Its values by name."""


@dataclass(frozen=True, slots=True)
class HeadStart:
    """The configs and trials that the search of a job and its baselines were given to begin with."""

    moved: Sequence[MovedStart] = ()
    """Configs of other models that the search tried."""
    num_pinned: int = 0
    """Other pinned configs of the search."""
    num_imported: int = 0
    """Trials of other studies that its sampler learned from."""
    baselines_moved: Sequence[int] = ()
    """The number of moved configs of each baseline."""
    baselines_pinned: Sequence[int] = ()
    """The number of other pinned configs of each baseline."""


@dataclass(frozen=True, slots=True)
class TransferResult:
    """The result of a config that was moved from another model."""

    source: str
    """The model that it was tuned for, for a person."""
    distance: float
    """Octaves between the two models."""
    number: int
    """The trial that tried it."""
    value: float | None
    """The objective of that trial; None: it did not complete, as what falls behind is left unfinished."""
    behind: float | None
    """The distance of that from the best of the search, as a share of the best; 0: it is the best. None: there is no
    value, or the best is 0."""


def transfer_results(
    starts: Sequence[MovedStart], trials: Sequence[FinishedTrial], direction: Direction
) -> list[TransferResult]:
    """The results of the configs with which a search began, in their order, without those that were never tried."""
    searched = [trial for trial in trials if trial.phase is Phase.SEARCH]
    values = [trial.value for trial in searched if trial.state is TrialState.COMPLETED and trial.value is not None]
    best = (min if direction is Direction.MINIMIZE else max)(values, default=None)
    found: list[TransferResult] = []
    for start in starts:
        trial = next((trial for trial in searched if trial.parameters == start.parameters), None)
        if trial is None:
            continue
        value = trial.value if trial.state is TrialState.COMPLETED else None
        behind = abs(value - best) / abs(best) if value is not None and best else None
        found.append(TransferResult(start.source, start.distance, trial.number, value, behind))
    return found
