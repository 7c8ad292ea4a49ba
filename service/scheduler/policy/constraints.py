"""The constraints of a job on its trials: bounds of metrics, judged from what a trial measures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from service.specification.job import Constraint

ONLY_GROWING = frozenset({"peak_memory_bytes"})
"""Metrics that no later measurement makes smaller: too much of one is too much at once."""


def violation(constraints: Sequence[Constraint], metrics: Mapping[str, float], *, is_last: bool) -> str | None:
    """The bound that a trial breaks, for a person; None: none, or none yet.

    Args:
        constraints: the job's.
        metrics: the metrics of a measurement; one that was not measured breaks its bound at the end.
        is_last: whether the trial has ended with it.
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
