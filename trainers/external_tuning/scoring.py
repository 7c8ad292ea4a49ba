"""AlgoPerf's score of any set of runs: times to goals, performance profiles, and the area under them.

    time of a study        the least over its trials
    time on a workload     the median over the studies; infinite if fewer than half of them reach the goal
    r(s, w)                time of submission s on workload w, over the least of all submissions
    profile ρ_s(τ)         the share of workloads with r(s, w) ≤ τ
    score of s             1/(τ_max − 1) · ∫ ρ_s(τ) dτ from 1 to τ_max = 4, so 1 if s is the fastest on all workloads

Source: Dolan and Moré, "Benchmarking optimization software with performance profiles" (2002), as AlgoPerf uses them
(arXiv:2306.07179, section 4.4). There the integral is a trapezoidal sum over 100 values of τ; here it is exact.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

from trainers.external_tuning.protocol import NUM_STUDIES, Run

Times: TypeAlias = Mapping[str, Mapping[str, float]]
"""Times to the goal, by submission and workload; infinite where it was missed."""
Unit: TypeAlias = Literal["steps", "seconds"]

MAX_RATIO = 4.0
"""τ_max: AlgoPerf's."""


def times(runs: Iterable[Run], unit: Unit, *, num_studies: int = NUM_STUDIES) -> dict[str, dict[str, float]]:
    """The time of each submission on each workload of the runs; a study that was not run has missed the goal.

    Raises:
        ValueError: a study has a number that is not below `num_studies`.
    """
    studies: dict[tuple[str, str], list[float]] = {}
    submissions: dict[str, None] = {}
    workloads: dict[str, None] = {}
    for run in runs:
        if not 0 <= run.study < num_studies:
            raise ValueError(f"studies must be below {num_studies}, got study {run.study} of {run.submission}")
        submissions[run.submission] = workloads[run.workload] = None
        of_studies = studies.setdefault((run.submission, run.workload), [math.inf] * num_studies)
        found = run.steps_to_goal if unit == "steps" else run.seconds_to_goal
        of_studies[run.study] = min(of_studies[run.study], math.inf if found is None else found)
    missed = [math.inf]
    return {
        submission: {
            # Of an even number the greater one in the middle, so that half are not enough.
            workload: statistics.median_high(studies.get((submission, workload), missed))
            for workload in workloads
        }
        for submission in submissions
    }


def ratios(found: Times) -> dict[str, dict[str, float]]:
    """r(s, w); infinite for all where no submission reaches the goal of a workload."""
    workloads = {workload for of_submission in found.values() for workload in of_submission}
    least = {workload: min(of_submission[workload] for of_submission in found.values()) for workload in workloads}
    return {
        submission: {
            workload: time / least[workload] if math.isfinite(time) else math.inf
            for workload, time in of_submission.items()
        }
        for submission, of_submission in found.items()
    }


def profile(of_submission: Mapping[str, float]) -> list[tuple[float, float]]:
    """The steps of ρ: each τ at which it rises, and its value from there on.

    Args:
        of_submission: the ratios r of one submission, by workload.
    """
    finite = sorted(ratio for ratio in of_submission.values() if math.isfinite(ratio))
    rises = {ratio: (number + 1) / len(of_submission) for number, ratio in enumerate(finite)}
    return list(rises.items())


def score(of_submission: Mapping[str, float], *, max_ratio: float = MAX_RATIO) -> float:
    """The area under the profile of one submission from 1 to `max_ratio`, over its width: in [0, 1]."""
    areas = [max(0.0, max_ratio - ratio) for ratio in of_submission.values()]
    return sum(areas) / len(areas) / (max_ratio - 1)
