"""The job's policy as a Ray Tune trial scheduler: after each measurement it says whether the trial continues.

Ray calls early stopping "scheduler"; we say pruner.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ray.tune.schedulers import FIFOScheduler, TrialScheduler

from service.scheduler.cluster.ray_internals import TuneRankGroups
from service.scheduler.policy.constraints import violation
from service.scheduler.policy.decisions import Decisions
from service.scheduler.policy.protocol import Decision
from service.scheduler.tune.messages import TrialOrder, TrialReport, TuneAdapter
from service.specification.job import Constraint


class PolicyPruner(TuneAdapter, FIFOScheduler):
    """Reports measurements to the policy and remembers what it decided."""

    def __init__(
        self,
        decisions: Decisions,
        *,
        constraints: Sequence[Constraint] = (),
        is_to_stop: Callable[[int], bool] = lambda _number: False,
        groups: TuneRankGroups | None = None,
    ) -> None:
        """Prepares the pruner.

        Args:
            decisions: the policy's decisions.
            constraints: bounds that a trial must keep.
            is_to_stop: whether a user has asked for the end of a trial.
            groups: to be attached to Tune, which shows its controller to a trial scheduler only.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self._groups = groups
        self._is_to_stop = is_to_stop
        self._decisions = decisions
        self._constraints = constraints

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        if self._groups is not None:
            self._groups.attach(tune_controller)

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """The decision; not called with a trial's last report, which ends it anyway."""
        number, report = TrialOrder.from_tune(trial.config).number, TrialReport.from_tune(result)
        assert report.measurement is not None
        if self._decisions.why_undecided(report.measurement.metrics) is not None:
            return str(TrialScheduler.STOP)  # it has failed, as the recorder says
        if violation(self._constraints, report.measurement.metrics, is_last=False) is not None:
            return str(TrialScheduler.STOP)  # the same
        decision = self._decisions.report(number, report.measurement)
        # A paused trial also leaves Tune: the searcher returns it later as a new one that continues from its
        # checkpoint.
        go_on: str = TrialScheduler.CONTINUE
        stop: str = TrialScheduler.STOP
        return go_on if decision is Decision.CONTINUE and not self._is_to_stop(number) else stop
