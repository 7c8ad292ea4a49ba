"""The objectives of a job with their directions, its target, and its constraints, checked against its workload."""

from __future__ import annotations

from search_spaces.nearest import did_you_mean
from service.domain import Direction, Objective
from service.errors import InvalidInput
from service.specification.job import Constraint, JobSpecification
from trainers.config import SUMMARY_PREFIXES, TargetConfig
from trainers.workload.description import LOOP_METRICS, TARGET_METRICS, WorkloadDescription, split_summary


def objectives_of(specification: JobSpecification, workload: WorkloadDescription) -> tuple[Objective, ...]:
    """The objectives of a job, the one that counts first, each in the direction in which it is better.

    Raises:
        InvalidInput: the workload has no such metric, or it is an objective already.
    """
    target = specification.target
    if target is not None and target.metric not in workload.metrics:
        raise InvalidInput("target.metric", _no_such_metric(workload, target.metric, sorted(workload.metrics)))
    if not specification.objectives:
        metric = workload.default_objective
        return (Objective(metric, Direction(workload.metrics[metric])),)
    found: dict[str, Objective] = {}
    for index, choice in enumerate(specification.objectives):
        field = f"objectives[{index}].metric"
        if choice.metric in found:
            raise InvalidInput(field, f"{choice.metric!r} is an objective already")
        direction = _direction(field, choice.metric, workload, has_target=target is not None)
        found[choice.metric] = Objective(choice.metric, direction)
    return tuple(found.values())


def _direction(field: str, metric: str, workload: WorkloadDescription, *, has_target: bool) -> Direction:
    """The direction in which an objective is better; `field` names it in errors."""
    measured = {**LOOP_METRICS, **workload.metrics}
    if metric in TARGET_METRICS and metric not in workload.metrics and not has_target:
        raise InvalidInput("target", f"is required by the metric {metric!r}")
    summarised = metric
    if metric.startswith(SUMMARY_PREFIXES) and metric not in (*measured, *SUMMARY_PREFIXES):
        summarised = split_summary(metric)[1]
        if summarised in TARGET_METRICS and summarised not in workload.metrics:
            raise InvalidInput(
                field, f"{summarised} is of the whole curve already: give it without the prefix, got {metric!r}"
            )
    if summarised not in measured:
        known = [*sorted(measured), *(f"{prefix}<metric>" for prefix in SUMMARY_PREFIXES)]
        raise InvalidInput(field, _no_such_metric(workload, metric, known))
    return Direction(measured[summarised])


def check_constraint(field: str, constraint: Constraint, workload: WorkloadDescription, *, has_target: bool) -> None:
    """Checks that a constraint bounds what the trials measure.

    Raises:
        InvalidInput: it does not; `field` is where it stands.
    """
    measured = {**LOOP_METRICS, **workload.metrics}
    if constraint.metric not in measured:
        raise InvalidInput(f"{field}.metric", _no_such_metric(workload, constraint.metric, sorted(measured)))
    if constraint.metric in TARGET_METRICS and constraint.metric not in workload.metrics and not has_target:
        raise InvalidInput("target", f"is required by the metric {constraint.metric!r}")
    if constraint.min is None and constraint.max is None:
        raise InvalidInput(field, "must have a min, a max or both")
    if constraint.min is not None and constraint.max is not None and constraint.min > constraint.max:
        raise InvalidInput(f"{field}.min", f"{constraint.min:g} exceeds the max, {constraint.max:g}")


def _no_such_metric(workload: WorkloadDescription, metric: str, known: list[str]) -> str:
    return (
        f"workload {workload.name!r} has no metric {metric!r} (it has: {', '.join(known)}){did_you_mean(metric, known)}"
    )


def summaries_of(specification: JobSpecification, workload: WorkloadDescription) -> tuple[str, ...]:
    """The objectives that sum up a trial's curve, and that the trial is to report."""
    metrics = (choice.metric for choice in specification.objectives)
    return tuple(metric for metric in metrics if metric.startswith(SUMMARY_PREFIXES) and metric not in workload.metrics)


def target_of(specification: JobSpecification, workload: WorkloadDescription) -> TargetConfig | None:
    """The value that a trial is to reach, in the metric's direction."""
    target = specification.target
    return None if target is None else TargetConfig(target.metric, target.value, workload.metrics[target.metric])
