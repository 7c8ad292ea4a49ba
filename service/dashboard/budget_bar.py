"""The bar that shows how much of a job's budget is spent, and how."""

from __future__ import annotations

from dataclasses import dataclass

from service.domain import TrialState
from service.use_cases.progress import JobProgress

BAR_STATES = (TrialState.COMPLETED, TrialState.PRUNED, TrialState.FAILED, TrialState.CANCELLED, TrialState.RUNNING)


@dataclass(frozen=True, slots=True)
class BarSegment:
    """A stretch of a budget bar, in percent of its width."""

    state: TrialState
    start: float
    width: float


def bar_of(progress: JobProgress) -> list[BarSegment]:
    """The stretches of a job's budget bar, finished trials first; what is left of 100 is not begun."""
    segments: list[BarSegment] = []
    start = 0.0
    for state in BAR_STATES:
        width = 100.0 * progress.trials.get(state, 0) / max(1, progress.num_trials)  # a job that ended at once had none
        if width:
            segments.append(BarSegment(state, round(start, 3), round(width, 3)))
            start += width
    return segments
