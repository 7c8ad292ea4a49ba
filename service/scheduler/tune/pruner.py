"""The job's policy as a Ray Tune trial scheduler: after each measurement it says whether the trial goes on.

Ray calls early stopping "scheduler"; we say pruner.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ray.tune.schedulers import FIFOScheduler, TrialScheduler

from service.scheduler.cluster.ray_internals import TuneRankGroups
from service.scheduler.policy.constraints import violation
from service.scheduler.policy.protocol import Decision, Policy
from service.scheduler.tune.messages import TrialOrder, TrialReport, TuneAdapter
from service.specification.job import Constraint


class PolicyPruner(TuneAdapter, FIFOScheduler):
    """Reports measurements to the policy and remembers what it decided."""

    def __init__(
        self,
        policy: Policy,
        *,
        metrics: Sequence[str],
        constraints: Sequence[Constraint] = (),
        is_to_stop: Callable[[int], bool] = lambda _number: False,
        groups: TuneRankGroups | None = None,
    ) -> None:
        """Prepares the pruner.

        Args:
            metrics: of the job's objectives; decisions go by the first alone.
            constraints: bounds that a trial must keep.
            is_to_stop: whether a user has asked for the end of a trial.
            groups: to be attached to Tune, which shows its controller to a trial scheduler only.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self._groups = groups
        self._is_to_stop = is_to_stop
        self._policy = policy
        self._constraints = constraints
        self._metrics = tuple(metrics)
        self._decisions: dict[int, Decision] = {}
        self._values: dict[int, tuple[float, ...]] = {}
        self._steps: dict[int, int] = {}

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        if self._groups is not None:
            self._groups.attach(tune_controller)

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """The decision; not called with a trial's last report, which ends it anyway."""
        number, report = TrialOrder.from_tune(trial.config).number, TrialReport.from_tune(result)
        assert report.measurement is not None
        if self._metrics[0] not in report.measurement.metrics:
            return str(TrialScheduler.STOP)  # it has failed, as the recorder says
        if violation(self._constraints, report.measurement.metrics, is_last=False) is not None:
            return str(TrialScheduler.STOP)  # the same
        decision = self.report(number, report)
        # A paused trial leaves Tune too: it comes back from the searcher as a new one that goes on from its checkpoint.
        go_on: str = TrialScheduler.CONTINUE
        stop: str = TrialScheduler.STOP
        return go_on if decision is Decision.CONTINUE and not self._is_to_stop(number) else stop

    def report(self, number: int, report: TrialReport) -> Decision:
        """Tells the policy a measurement of a trial; the policy's decision."""
        assert report.measurement is not None
        metrics = report.measurement.metrics
        self._steps[number] = report.measurement.step
        self._values[number] = tuple(metrics.get(name, math.nan) for name in self._metrics)
        self._decisions[number] = self._policy.report(
            number, report.measurement.step, metrics[self._metrics[0]], seconds=report.measurement.seconds
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
