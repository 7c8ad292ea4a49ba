"""The policy's decisions on the trials of a run when they report, and the last measurement of each trial."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from service.scheduler.policy.protocol import Decision, Policy
from trainers.config import Measurement, is_usable


class Decisions:
    """Reports the measurements of trials to the policy, and remembers its decisions."""

    def __init__(self, policy: Policy, *, metrics: Sequence[str], bounded: Sequence[str] | None = None) -> None:
        """Knows of no trial yet.

        Args:
            metrics: the names of the objectives' metrics; decisions depend only on the first.
            bounded: the metrics of the job's constraints; each measurement must have them and all objectives. None: it
                must only have the first objective, because clients train, who may measure the rest at the end.
        """
        self._needed = tuple(metrics[:1] if bounded is None else dict.fromkeys([*metrics, *bounded]))
        self._policy = policy
        self._metrics = tuple(metrics)
        self._decisions: dict[int, Decision] = {}
        self._values: dict[int, tuple[float, ...]] = {}
        self._steps: dict[int, int] = {}

    def why_undecided(self, metrics: Mapping[str, float]) -> str | None:
        """The metrics that the job needs and a measurement lacks, and those that it has, in words; None: it lacks
        none."""
        missing = ", ".join(repr(name) for name in self._needed if name not in metrics)
        return f"the workload did not measure {missing}, only: {', '.join(metrics)}" if missing else None

    def unusable(self, metrics: Mapping[str, float]) -> str | None:
        """The first measured objective that is not finite, or too large to calculate with; None: there is none."""
        return next((name for name in self._metrics if not is_usable(metrics.get(name, 0.0))), None)

    def report(self, number: int, measurement: Measurement) -> Decision:
        """Reports a measurement of a trial to the policy; returns the policy's decision."""
        metrics = measurement.metrics
        self._steps[number] = measurement.step
        self._values[number] = tuple(metrics.get(name, math.nan) for name in self._metrics)
        self._decisions[number] = self._policy.report(
            number, measurement.step, metrics[self._metrics[0]], seconds=measurement.seconds
        )
        return self._decisions[number]

    def last_values(self, number: int) -> tuple[float, ...]:
        """The objectives, in the order of the job, at the latest measurement of a trial; NaN: it was not measured."""
        return self._values[number]

    def last_step(self, number: int) -> int:
        """The step of the latest measurement of a trial in this run; 0: there was none."""
        return self._steps.get(number, 0)

    def last_decision(self, number: int) -> Decision:
        """The decision after the latest measurement of a trial."""
        return self._decisions.get(number, Decision.CONTINUE)
