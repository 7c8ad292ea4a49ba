"""The constraints of a job on its trials: bounds of metrics, checked against a trial's measurements."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from service.specification.job import Constraint

ONLY_GROWING = frozenset({"peak_memory_bytes"})
"""Metrics that no later measurement makes smaller: a trial that exceeds such a bound breaks it immediately."""


def violation(constraints: Sequence[Constraint], metrics: Mapping[str, float], *, is_last: bool) -> str | None:
    """The bound that a trial breaks, in words; None: none, or none yet.

    Args:
        constraints: the constraints of the job.
        metrics: the metrics of a measurement; a metric that was not measured breaks its bound at the end.
        is_last: whether it is the trial's last measurement.
    """
    for constraint in constraints:
        if not is_last and not (constraint.metric in ONLY_GROWING and constraint.max is not None):
            continue
        value = metrics.get(constraint.metric, math.nan)
        if constraint.metric not in metrics:
            return f"{constraint.metric} has a bound and was not measured, only: {', '.join(metrics)}"
        if constraint.max is not None and not value <= constraint.max:
            return f"{constraint.metric} is {value:g}, at most {constraint.max:g} is allowed"
        if constraint.min is not None and not value >= constraint.min:
            return f"{constraint.metric} is {value:g}, at least {constraint.min:g} is required"
    return None
