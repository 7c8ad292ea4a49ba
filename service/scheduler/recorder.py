"""What happens in Tune, written to SQL and told to the policy: trials begin, report and end.

Every write is fenced by the job's lease; a run that has lost it ends at once and writes nothing more.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ray import tune

from service import runs
from service.domain import FailureReason, TrialState
from service.errors import LeaseLost
from service.leases import Lease
from service.scheduler.constraints import violation
from service.scheduler.ending import Ending, JobImpossible, RunEnded
from service.scheduler.policy import Decision, GiveUp, Policy, Resume, Start
from service.scheduler.pruning import PolicyPruner
from service.scheduler.rank_group import GroupSize
from service.scheduler.trainable import TrialOrder, TrialReport
from service.scheduler.tune_adapter import TuneAdapter
from service.specification import JobPlan
from service.store.retry import Write, write_with_retries
from service.store.session import Database
from trainers.config import Measurement

logger = logging.getLogger(__name__)

FLUSH_SECONDS = 0.25
"""Longest time that a measurement waits to be written."""
MAX_LOSSES = 3
"""Times that a trial whose rank or machine died is taken up again, before it fails as lost."""
OUTAGE_SECONDS = 120.0
"""How long the database may be out of reach; trials wait meanwhile."""
MAX_DETAIL_LENGTH = 2000


@dataclass(frozen=True, slots=True)
class _End:
    """How a trial's stay in Tune ended; state queued: it comes back."""

    state: TrialState
    reason: FailureReason | None = None
    detail: str | None = None
    policy_knows: bool = False


class Recorder(TuneAdapter, tune.Callback):
    """Stands between Tune and the job's rows."""

    def __init__(
        self,
        database: Database,
        lease: Lease,
        *,
        plan: JobPlan,
        policy: Policy,
        pruner: PolicyPruner,
        size: GroupSize,
        configs: Mapping[int, dict[str, Any]],
        checkpoints: Path,
        ending: Callable[[], Ending | None],
    ) -> None:
        """Prepares the record of one run.

        Args:
            configs: the stored configs of unfinished trials, by number.
            checkpoints: directory of the job's checkpoints; each trial gets one in it, named by its number.
            ending: what ends the run early, if anything; asked at every turn of Tune's loop.
        """
        self._database = database
        self._lease = lease
        self._plan = plan
        self._policy = policy
        self._pruner = pruner
        self._size = size
        self._configs = dict(configs)
        self._checkpoints = checkpoints
        self._ending = ending
        self._running: set[int] = set()
        self._losses: Counter[int] = Counter()
        self._pending: dict[int, list[Measurement]] = {}
        self._flushed_at = time.monotonic()

    def order(self, asked: Start | Resume) -> TrialOrder:
        """The order for a trial that the policy asked for; a new one is stored first.

        Raises:
            JobImpossible: the search space allows a value that no trial config does.
        """
        if isinstance(asked, Start):
            try:
                config = self._plan.trial_config(asked.phase, dict(asked.parameters))
            except ValueError as error:
                raise JobImpossible(
                    f"the {asked.phase} space gave trial {asked.number} a config that cannot be: {error}"
                ) from error
            self._write(
                lambda session: runs.add_trial(
                    session,
                    self._lease,
                    number=asked.number,
                    phase=asked.phase,
                    parameters=asked.parameters,
                    config=config,
                    now=_now(),
                )
            )
            self._configs[asked.number] = config.to_json()
        return TrialOrder(
            asked.number,
            self._configs[asked.number],
            str(self._checkpoint_directory(asked.number)),
            self._size,
            report_timeout_seconds=self._plan.specification.training.report_timeout_seconds,
            until_step=asked.until,
        )

    def give_up(self, asked: GiveUp) -> None:
        """Ends a paused trial that is not worth going on with."""
        self._end(asked.number, _End(TrialState.PRUNED, detail="paused early, and not promising enough to go on with"))

    def flush(self) -> None:
        """Writes the measurements that wait."""
        self._write(lambda _session: None)

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Runs at every turn of Tune's loop, several times a second."""
        ending = self._ending()
        if ending is not None:
            raise RunEnded(ending)
        if self._pending and time.monotonic() - self._flushed_at >= FLUSH_SECONDS:
            self.flush()

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        number = TrialOrder.from_tune(trial.config).number
        self._write(lambda session: runs.start_trial(session, self._lease, number, now=_now()))
        self._running.add(number)

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        number, report = TrialOrder.from_tune(trial.config).number, TrialReport.from_tune(result)
        if report.measurement is not None:
            self._pending.setdefault(number, []).append(report.measurement)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """A trial gave its last report, or the pruner stopped it."""
        order, report = TrialOrder.from_tune(trial.config), TrialReport.from_tune(trial.last_result)
        if report.trace:
            logger.warning("trial %d of job %s failed:\n%s", order.number, self._lease.job_id, report.trace)
        self._end(order.number, self._end_of(order.number, report))

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """The trainable's own process died, or its machine."""
        order = TrialOrder.from_tune(trial.config)
        self._end(order.number, self._end_of_loss(order.number, "its process or its machine was lost"))

    def _end_of(self, number: int, report: TrialReport) -> _End:
        if report.measurement is not None and self._plan.metric not in report.measurement.metrics:
            given = ", ".join(report.measurement.metrics)
            detail = f"the workload did not measure {self._plan.metric!r}, only: {given}"
            return _End(TrialState.FAILED, FailureReason.ERROR, detail)
        if report.measurement is not None:
            broken = violation(
                self._plan.specification.constraints, report.measurement.metrics, is_last=report.kind == "completed"
            )
            if broken is not None:
                return _End(TrialState.FAILED, FailureReason.INFEASIBLE, broken)
        match report.kind:
            case "completed":
                self._pruner.report(number, report)
                return _End(TrialState.COMPLETED)
            case "failed" if report.reason is FailureReason.LOST:
                return self._end_of_loss(number, report.detail or "")
            case "failed":
                return _End(TrialState.FAILED, report.reason, report.detail)
            case "measured" if self._pruner.last_decision(number) is Decision.PAUSE:
                return _End(TrialState.QUEUED, detail="paused: others are tried before it goes on", policy_knows=True)
            case "measured":
                return _End(TrialState.PRUNED)

    def _end_of_loss(self, number: int, detail: str) -> _End:
        self._losses[number] += 1
        logger.warning("trial %d of job %s was lost: %s", number, self._lease.job_id, detail)
        if self._losses[number] > MAX_LOSSES:
            return _End(TrialState.FAILED, FailureReason.LOST, f"lost {self._losses[number]} times; last: {detail}")
        return _End(TrialState.QUEUED, detail=f"lost; goes on from its last checkpoint: {detail}")

    def _end(self, number: int, end: _End) -> None:
        detail = None if end.detail is None else end.detail[:MAX_DETAIL_LENGTH]
        if end.state is not TrialState.QUEUED:
            self._write(
                lambda session: runs.finish_trial(
                    session, self._lease, number, end.state, reason=end.reason, detail=detail, now=_now()
                )
            )
            shutil.rmtree(self._checkpoint_directory(number), ignore_errors=True)
        elif number in self._running:
            self._write(
                lambda session: runs.requeue_trial(session, self._lease, number, detail=detail or "", now=_now())
            )
        self._running.discard(number)
        if not end.policy_knows:
            value = self._pruner.last_value(number) if end.state is TrialState.COMPLETED else None
            self._policy.tell(number, end.state, value, end.reason)

    def _checkpoint_directory(self, number: int) -> Path:
        return self._checkpoints / str(number)

    def _write(self, write: Write) -> None:
        """Writes the waiting measurements and then `write`, in one transaction.

        Raises:
            RunEnded: the job is no longer this run's.
        """
        batch = [runs.TrialMeasurements(number, reported) for number, reported in self._pending.items()]

        def all_of_it(session: Any) -> None:
            if batch:
                runs.record_measurements(session, self._lease, batch, now=_now())
            write(session)

        try:
            write_with_retries(
                self._database, all_of_it, give_up_seconds=OUTAGE_SECONDS, may_wait=lambda: self._ending() is None
            )
        except LeaseLost as error:
            raise RunEnded(Ending.LEASE_LOST) from error
        self._pending.clear()
        self._flushed_at = time.monotonic()


def _now() -> datetime:
    return datetime.now(UTC)
