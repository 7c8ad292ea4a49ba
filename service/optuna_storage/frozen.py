"""Rows as Optuna's frozen studies and trials."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from service import domain
from service.domain import Direction, Phase
from service.optuna_internals import METRIC_NAMES, FrozenStudy
from service.optuna_storage.dimensions import Distributions, parameters_of
from service.optuna_storage.study_ids import JobStudy, trial_id
from service.store.repositories import StudyTrial

_STATES = {
    domain.TrialState.RUNNING: TrialState.RUNNING,
    domain.TrialState.COMPLETED: TrialState.COMPLETE,
    domain.TrialState.PRUNED: TrialState.PRUNED,
    domain.TrialState.FAILED: TrialState.FAIL,
    domain.TrialState.CANCELLED: TrialState.FAIL,
}


def directions(study: JobStudy) -> list[StudyDirection]:
    """The direction of each objective."""
    return [
        StudyDirection.MINIMIZE if objective.direction is Direction.MINIMIZE else StudyDirection.MAXIMIZE
        for objective in study.job.objectives
    ]


def user_attributes(study: JobStudy) -> dict[str, Any]:
    """A study's attributes in the service: its job, the part of it, its objectives and its model."""
    job = study.job
    return _known(
        job=job.id,
        name=job.name,
        state=job.state.value,
        phase=study.phase.value,
        optimizer=study.optimizer,
        objectives=[objective.metric for objective in job.objectives],
        workload=job.workload,
        model=job.model,
        fingerprint=job.fingerprint,
    )


def system_attributes(study: JobStudy) -> dict[str, Any]:
    """The names of the objectives, by which Optuna's tools label axes."""
    return {METRIC_NAMES: [objective.metric for objective in study.job.objectives]}


def frozen_study(study: JobStudy) -> FrozenStudy:
    return FrozenStudy(
        study_name=study.name,
        direction=None,
        directions=directions(study),
        user_attrs=user_attributes(study),
        system_attrs=system_attributes(study),
        study_id=study.id,
    )


def frozen_trial(
    study: JobStudy, number: int, trial: StudyTrial, dimensions: Distributions, curve: Mapping[int, float]
) -> FrozenTrial:
    """A trial as one of a study.

    Args:
        number: its position in the study.
        dimensions: the dimensions of its side's space.
        curve: the first objective by step; NaN: it was not finite.
    """
    # In the confirmation, the search's config and the baselines' may give one name to different ranges.
    is_of_another_space = study.phase is Phase.CONFIRMATION and trial.side != Phase.SEARCH
    parameters = parameters_of(dimensions, trial.parameters, prefix=f"{trial.side}/" if is_of_another_space else "")
    values = _values(study, trial, curve)
    state = _state(trial)
    if state is TrialState.COMPLETE and values is None:
        state = TrialState.PRUNED  # Optuna's complete trials have numbers; the job's own search tells it so, too
    return FrozenTrial(
        number=number,
        state=state,
        value=None,
        values=values,
        datetime_start=None if state is TrialState.WAITING else _local(trial.started_at or trial.created_at),
        datetime_complete=None if trial.finished_at is None else _local(trial.finished_at),
        params=dict(parameters.values),
        distributions=parameters.distributions,
        user_attrs=_known(
            trial=trial.number,
            state=trial.state.value,
            phase=trial.phase.value,
            optimizer=trial.optimizer,
            seed=trial.seed,
            step=trial.step,
            seconds=trial.spent_seconds,
            reason=None if trial.reason is None else trial.reason.value,
            detail=trial.detail,
            confirms=trial.confirms,
            forked_from=trial.forked_from,
            proposed=trial.proposed or None,
        )
        | {f"no longer in the space: {name}": value for name, value in parameters.unknown.items()},
        system_attrs={},
        intermediate_values=dict(curve),
        trial_id=trial_id(study.job, trial.number),
    )


def _state(trial: StudyTrial) -> TrialState:
    """Optuna's word for a state: a trial that has begun and is not over runs, also while it is paused."""
    if trial.state is domain.TrialState.QUEUED:
        return TrialState.WAITING if trial.started_at is None else TrialState.RUNNING
    return _STATES[trial.state]


def _values(study: JobStudy, trial: StudyTrial, curve: Mapping[int, float]) -> list[float] | None:
    """The objectives of a completed trial, and the last value of a pruned one, as Optuna keeps it; None: none."""
    objectives = study.job.objectives
    if trial.state is domain.TrialState.COMPLETED:
        values = [trial.metrics.get(objective.metric) for objective in objectives]
        finite = [value for value in values if value is not None]
        return finite if len(finite) == len(values) else None
    if trial.state is domain.TrialState.PRUNED and len(objectives) == 1 and curve:
        last = curve[max(curve)]
        return [last] if math.isfinite(last) else None
    return None


def _local(moment: datetime) -> datetime:
    """The moment on this machine's clock, without a zone: so are all of Optuna's times."""
    return moment.astimezone().replace(tzinfo=None)


def _known(**attributes: Any) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value is not None}
