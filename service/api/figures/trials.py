"""Trials as charts need them, and the names of what they tune."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from search_spaces import preset
from service.domain import FailureReason, Phase, Side, TrialState, side_of
from service.evidence.in_words.wording import optimizer_title, rivals_title
from service.specification.job import JobSpecification
from service.store.repositories import PlottedTrial

Point = tuple[float, float | None]


@dataclass(frozen=True, slots=True)
class PlotTrial:
    """A trial as the charts need it."""

    number: int
    phase: Phase
    state: TrialState
    reason: FailureReason | None = None
    value: float | None = None
    finished_after: float | None = None
    """Seconds from the job's start to the trial's end; None while unfinished."""
    confirms: int | None = None
    """The trial whose config it repeats, in the confirmation; None: it repeats none."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    points: Sequence[Point] = ()
    """(step or examples seen, objective) in their order; None where it was not finite."""
    side: Side = ""
    """The side that it belongs to, the search or a baseline; empty: the phase alone tells."""

    @property
    def group(self) -> str:
        """The group with which it shares colour and label: its side, or its phase."""
        return self.side or self.phase.value


def plot_trial(trial: PlottedTrial, *, started_at: datetime | None) -> PlotTrial:
    """The row of a trial as the charts need it, without parameters and points."""
    origin = started_at or trial.created_at
    return PlotTrial(
        number=trial.number,
        phase=trial.phase,
        state=trial.state,
        side="" if trial.confirms is not None else side_of(trial.phase, trial.optimizer),
        reason=trial.reason,
        value=trial.value,
        finished_after=(trial.finished_at - origin).total_seconds() if trial.finished_at else None,
        confirms=trial.confirms,
    )


def phase_labels(specification: JobSpecification) -> dict[Phase, str]:
    """The optimizer that each phase tunes, as a person calls it; where there are several baselines, that of the
    best."""
    baselines = [_optimizer(baseline.search_space) for baseline in specification.baselines]
    return {
        Phase.SEARCH: optimizer_title(_optimizer(specification.search_space)),
        Phase.BASELINE: rivals_title(baselines) or "Baseline",
        Phase.CONFIRMATION: "Confirmation",
    }


def side_labels(specification: JobSpecification) -> dict[str, str]:
    """The optimizer of each side, the baselines in their order, and the name of the confirmation."""
    baselines = [_optimizer(baseline.search_space) for baseline in specification.baselines]
    return {
        Phase.SEARCH: optimizer_title(_optimizer(specification.search_space)),
        **{optimizer: optimizer_title(optimizer) for optimizer in baselines},
        Phase.CONFIRMATION: "Confirmation",
    }


def _optimizer(space: str | Mapping[str, Any]) -> str:
    return preset(space).optimizer if isinstance(space, str) else str(space["optimizer"])
