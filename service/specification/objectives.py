"""The objectives of a job with their directions, its target, and its constraints, checked against its workload."""

from __future__ import annotations

from service.domain import Direction
from service.errors import InvalidInput
from service.specification.job import Constraint, Objective
from trainers.config import SUMMARY_PREFIXES, TargetConfig
from trainers.workload.description import LOOP_METRICS, TARGET_METRICS, WorkloadDescription, split_summary


def first_objective(objective: Objective | None, workload: WorkloadDescription) -> tuple[str, Direction]:
    """The metric that counts, and the direction in which it is better.

    Raises:
        InvalidInput: the workload has no such metric.
    """
    if objective is None:
        return workload.default_objective, Direction(workload.metrics[workload.default_objective])
    if objective.target is not None and objective.target.metric not in workload.metrics:
        raise InvalidInput(
            "objective.target.metric", _no_such_metric(workload, objective.target.metric, sorted(workload.metrics))
        )
    return objective.metric, _direction("objective.metric", objective.metric, objective, workload)


def further_objectives(objective: Objective | None, workload: WorkloadDescription) -> tuple[tuple[str, Direction], ...]:
    """The objectives after the first, with the direction in which each is better.

    Raises:
        InvalidInput: the workload has no such metric, or it is an objective already.
    """
    if objective is None:
        return ()
    found: dict[str, Direction] = {}
    for index, metric in enumerate(objective.also):
        field = f"objective.also[{index}]"
        if metric == objective.metric or metric in found:
            raise InvalidInput(field, f"{metric!r} is an objective already")
        found[metric] = _direction(field, metric, objective, workload)
    return tuple(found.items())


def _direction(field: str, metric: str, objective: Objective, workload: WorkloadDescription) -> Direction:
    """The direction in which an objective is better; `field` names it in errors."""
    measured = {**LOOP_METRICS, **workload.metrics}
    if metric in TARGET_METRICS and metric not in workload.metrics and objective.target is None:
        raise InvalidInput("objective.target", f"is required by the metric {metric!r}")
    summarised = metric
    if metric.startswith(SUMMARY_PREFIXES) and metric not in (*measured, *SUMMARY_PREFIXES):
        summarised = split_summary(metric)[1]
        if summarised in TARGET_METRICS and summarised not in workload.metrics:
            raise InvalidInput(field, f"{metric!r}: {summarised} is of the whole curve already")
    if summarised not in measured:
        known = [*sorted(measured), *(f"{prefix}<metric>" for prefix in SUMMARY_PREFIXES)]
        raise InvalidInput(field, _no_such_metric(workload, metric, known))
    return Direction(measured[summarised])


def check_constraint(
    field: str, constraint: Constraint, objective: Objective | None, workload: WorkloadDescription
) -> None:
    """Checks that a constraint bounds what the trials measure.

    Raises:
        InvalidInput: it does not; `field` is where it stands.
    """
    measured = {**LOOP_METRICS, **workload.metrics}
    if constraint.metric not in measured:
        raise InvalidInput(f"{field}.metric", _no_such_metric(workload, constraint.metric, sorted(measured)))
    has_target = objective is not None and objective.target is not None
    if constraint.metric in TARGET_METRICS and constraint.metric not in workload.metrics and not has_target:
        raise InvalidInput("objective.target", f"is required by the metric {constraint.metric!r}")
    if constraint.min is None and constraint.max is None:
        raise InvalidInput(field, "needs a min or a max")
    if constraint.min is not None and constraint.max is not None and constraint.min > constraint.max:
        raise InvalidInput(f"{field}.min", f"{constraint.min:g} exceeds the max, {constraint.max:g}")


def _no_such_metric(workload: WorkloadDescription, metric: str, known: list[str]) -> str:
    return f"workload {workload.name!r} has no metric {metric!r} (it has: {', '.join(known)})"


def summaries_of(objective: Objective | None, workload: WorkloadDescription) -> tuple[str, ...]:
    """The objectives that sum up a trial's curve, and that the trial is to report."""
    metrics = () if objective is None else (objective.metric, *objective.also)
    return tuple(metric for metric in metrics if metric.startswith(SUMMARY_PREFIXES) and metric not in workload.metrics)


def target_of(objective: Objective | None, workload: WorkloadDescription) -> TargetConfig | None:
    """The value that a trial is to reach, in the metric's direction."""
    target = None if objective is None else objective.target
    return None if target is None else TargetConfig(target.metric, target.value, workload.metrics[target.metric])
