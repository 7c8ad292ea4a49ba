"""The stored trials of a job, in the form in which its policy gets them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from service.domain import Objective, Side, TrialState, side_of
from service.scheduler.policy.protocol import Fork, Repeats, TrialHistory
from service.store.models import Trial


def history_of(trials: Sequence[Trial], objectives: Sequence[Objective]) -> list[TrialHistory]:
    """The stored trials of a job with these objectives, in the form in which its policy gets them."""
    by_number = {trial.number: trial for trial in trials}

    def value_of(objective: Objective, metrics: dict[str, Any]) -> float:
        value = metrics.get(objective.metric)
        return float("nan") if value is None else float(value)  # SQL keeps no NaN

    def side(trial: Trial) -> Side:
        found_by = trial if trial.confirms is None else by_number[trial.confirms]
        return side_of(found_by.phase, found_by.stored_config.optimizer)

    def repeats(trial: Trial) -> Repeats | None:
        if trial.confirms is None:
            return None
        return Repeats(trial.confirms, side(trial), trial.stored_config.seed)

    return [
        TrialHistory(
            number=trial.number,
            side=side(trial),
            parameters=trial.parameters,
            state=trial.state,
            reason=trial.reason,
            values=(
                tuple(value_of(objective, trial.metrics) for objective in objectives)
                if trial.state is TrialState.COMPLETED
                else ()
            ),
            curve=tuple(
                (measurement.step, value_of(objectives[0], measurement.metrics)) for measurement in trial.measurements
            ),
            repeats=repeats(trial),
            spared=trial.spared,
            proposed=trial.proposed,
            fork=_fork_of(trial),
            seconds=tuple(measurement.seconds for measurement in trial.measurements),
        )
        for trial in trials
    ]


def _fork_of(trial: Trial) -> Fork | None:
    """The checkpoint from which a stored trial begins; None: it begins without one."""
    if trial.forked_from is None:
        return None
    assert trial.forked_at_step is not None
    return Fork(trial.forked_from, trial.forked_at_step)
