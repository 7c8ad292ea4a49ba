"""The trained weights that are kept when a job has ended: those of the best confirmed trial of each of the two compared
configs."""

from __future__ import annotations

import math

from service.domain import Direction, TrialState, WeightsOf
from service.store.models import Job
from service.store.repositories import RecommendationRepository
from service.store.repositories.of_trials.trial_relations import TrialRelationRepository
from service.store.session import Session


def winners_of(session: Session, job: Job) -> dict[WeightsOf, int]:
    """The numbers of the trials of the confirmation with the best values, of the recommended config and the baseline's
    best; a side that was not confirmed is left out."""
    stored = RecommendationRepository(session).of_job(job.id)
    if stored is None:
        return {}
    evidence = stored.evidence
    sign = 1.0 if job.direction is Direction.MINIMIZE else -1.0
    relations = TrialRelationRepository(session)
    found = {}
    for side, winner in ((WeightsOf.RECOMMENDED, evidence.best), (WeightsOf.BASELINE, evidence.baseline)):
        values = [
            (sign * trial.value, trial.number)
            for trial in (() if winner is None else relations.confirmed_by(job.id, winner.number))
            if trial.state is TrialState.COMPLETED and trial.value is not None and math.isfinite(trial.value)
        ]
        if values:
            found[side] = min(values)[1]
    return found
