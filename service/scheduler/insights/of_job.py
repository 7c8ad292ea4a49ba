"""What the stored trials of a job tell, side by side: what is read for it, and what is made of that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from search_spaces import SearchSpace
from service.domain import Direction, Side, side_of
from service.evidence.insights import JobInsights
from service.scheduler.insights.compared import EndedTrial, sampled
from service.scheduler.insights.early_late import MAX_TRIALS, Curve
from service.scheduler.insights.of_side import insights_of_side
from service.specification.phases import spaces_of
from service.store.repositories import InsightsRepository, JobRepository, MeasurementRepository
from service.store.repositories.insights import EndedTrialRow
from service.store.session import Session


@dataclass(frozen=True, slots=True)
class EndedTrials:
    """The ended trials of a job, as far as insights need them."""

    metric: str
    direction: Direction
    spaces: Mapping[Side, SearchSpace]
    by_side: Mapping[Side, Sequence[EndedTrial]]
    curves: Mapping[str, Curve]
    """Of some that completed, by the id of the trial."""

    @property
    def num_ended(self) -> int:
        return sum(len(trials) for trials in self.by_side.values())


def read_ended(session: Session, job_id: str) -> EndedTrials:
    """The trials of a job that have ended by now."""
    job = JobRepository(session).get(job_id)
    spaces = spaces_of(job.specification)
    by_side: dict[Side, list[EndedTrial]] = {side: [] for side in spaces}
    for row in InsightsRepository(session).ended(job_id):
        by_side[side_of(row.phase, row.optimizer)].append(_ended(row))
    chosen = [trial.id for trials in by_side.values() for trial in _to_follow(trials)]
    curves = MeasurementRepository(session).curves(chosen, job.metric)
    return EndedTrials(job.metric, job.direction, spaces, by_side, curves)


def _ended(row: EndedTrialRow) -> EndedTrial:
    progress = row.step / row.num_steps
    return EndedTrial(row.id, row.number, row.state, row.reason, row.parameters, row.value, progress)


def _to_follow(trials: Sequence[EndedTrial]) -> list[EndedTrial]:
    """Those whose early values are compared with their last ones."""
    return sampled([trial for trial in trials if trial.has_value], at_most=MAX_TRIALS)


def insights_of(ended: EndedTrials) -> JobInsights:
    """What the trials tell."""
    sides = [
        insights_of_side(side, space, ended.by_side[side], ended.direction, ended.curves)
        for side, space in ended.spaces.items()
    ]
    return JobInsights(ended.metric, ended.direction, num_ended=ended.num_ended, sides=sides)
