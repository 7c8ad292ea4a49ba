"""Constraints: when a bound counts as broken, and what becomes of the trial."""

from __future__ import annotations

import math

import pytest

from service.scheduler.policy.constraints import violation
from service.specification.job import Constraint

SLOW = Constraint(metric="step_seconds", max=0.5)
LARGE = Constraint(metric="peak_memory_bytes", max=8e9)
ACCURATE = Constraint(metric="validation_accuracy", min=0.9)


@pytest.mark.parametrize(
    ("metrics", "is_last", "said"),
    [
        ({"step_seconds": 0.5, "peak_memory_bytes": 8e9, "validation_accuracy": 0.9}, True, None),
        ({"step_seconds": 9.0, "peak_memory_bytes": 1e9, "validation_accuracy": 0.1}, False, None),
        (
            {"step_seconds": 9.0, "peak_memory_bytes": 1e9, "validation_accuracy": 1.0},
            True,
            "step_seconds is 9, at most",
        ),
        ({"step_seconds": 0.1, "peak_memory_bytes": 9e9}, False, "peak_memory_bytes is 9e+09, at most 8e+09"),
        (
            {"step_seconds": 0.1, "peak_memory_bytes": 1e9, "validation_accuracy": 0.8},
            True,
            "validation_accuracy is 0.8, at least 0.9",
        ),
        ({"step_seconds": math.nan, "peak_memory_bytes": 1e9, "validation_accuracy": 1.0}, True, "step_seconds is nan"),
        ({"step_seconds": 0.1, "peak_memory_bytes": 1e9}, True, "validation_accuracy has a bound and was not measured"),
    ],
)
def test_bounds_are_judged_at_the_end_and_memory_at_once(
    metrics: dict[str, float], is_last: bool, said: str | None
) -> None:
    found = violation([SLOW, LARGE, ACCURATE], metrics, is_last=is_last)
    assert found is None if said is None else found is not None and said in found
