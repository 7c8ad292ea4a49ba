"""What happens in Tune, written to SQL and told to the policy: trials begin, report and end.

Every write is fenced by the job's lease; a run that has lost it ends at once and writes nothing more.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import Any

from ray import tune

from service.clock import utc_now
from service.domain import FailureReason, TrialState
from service.errors import LeaseLost, RunAskedToEnd
from service.scheduler.checkpoint_storage import Collector
from service.scheduler.cluster.group_size import GroupSize
from service.scheduler.policy.constraints import violation
from service.scheduler.policy.feasibility import Feasibility
from service.scheduler.policy.protocol import Decision, GiveUp, Policy, Resume, Start
from service.scheduler.policy.retries import Retries
from service.scheduler.policy.time_limit import Pace
from service.scheduler.tune.messages import TrialOrder, TrialReport, TuneAdapter
from service.scheduler.tune.pruner import PolicyPruner
from service.scheduler.tune.run_end import Ending, JobImpossible, RunEnded
from service.specification.planning import JobPlan
from service.store.retry import Write, write_with_retries
from service.store.session import Database
from service.use_cases import run
from service.use_cases.leases import Lease
from service.use_cases.transitions import STOPPED
from trainers.config import Measurement, TrialConfig
from trainers.storage import Place, text_of

logger = logging.getLogger(__name__)

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
        retries: Retries,
        configs: Mapping[int, dict[str, Any]],
        checkpoints: Place,
        ending: Callable[[], Ending | None],
        feasibility: Feasibility | None = None,
        never_launched: Set[int] = frozenset(),
        to_stop: Callable[[], Set[int]] = frozenset,
        seconds_left: Callable[[], float] = lambda: math.inf,
    ) -> None:
        """Prepares the record of one run.

        Args:
            retries: knows of the failures of earlier runs.
            configs: the stored configs of unfinished trials, by number.
            checkpoints: where the job's checkpoints lie; each trial gets a directory there, named by its number.
            ending: what ends the run early, if anything; asked at every turn of Tune's loop.
            feasibility: judges trials before they are first launched; None: all are.
            never_launched: unfinished trials that no earlier run has launched, but for forks and confirmation.
            to_stop: trials that a user has asked to stop; asked at every turn, too.
            seconds_left: until the time limit; shortly before, no more trials are started.
        """
        self._database = database
        self._lease = lease
        self._plan = plan
        self._policy = policy
        self._pruner = pruner
        self._size = size
        self._retries = retries
        self._configs = dict(configs)
        self._checkpoints = checkpoints
        self._collector = Collector(checkpoints, unfinished=self._configs)
        # A run can die between a trial's end and this, or after it has given a fork a checkpoint and before the fork
        # is stored: its number may meanwhile be another trial's.
        self._collector.collect_now(not_launched=never_launched)
        self._ending = ending
        self._feasibility = feasibility or Feasibility()
        self._never_launched = set(never_launched)
        self._to_stop = to_stop
        self._seconds_left = seconds_left
        self._pace = Pace(plan.num_steps, clock=time.monotonic)
        self._ordered: set[int] = set()
        """Trials that Tune has, running or about to."""
        self._pending: dict[int, list[Measurement]] = {}

    def order(self, asked: Start | Resume) -> TrialOrder | None:
        """The order for a trial that the policy asked for; a new one is stored first. None: it cannot fit, and ended.

        Raises:
            JobImpossible: the search space allows a value that no trial config does.
            RunEnded: the run is to begin nothing more.
        """
        if isinstance(asked, Start):
            repeats = asked.repeats
            phase, seed = (asked.phase, None) if repeats is None else (repeats.phase, repeats.seed)
            try:
                config = self._plan.trial_config(phase, dict(asked.parameters), seed=seed)
            except ValueError as error:
                raise JobImpossible(
                    f"the {phase} space gave trial {asked.number} a config that cannot be: {error}"
                ) from error
            self._configs[asked.number] = config.to_json()  # before the fork has files, which are collected otherwise
            why_not = self._fork(asked, config)
            self.write(
                lambda session: run.add_trial(
                    session,
                    self._lease,
                    number=asked.number,
                    phase=asked.phase,
                    parameters=asked.parameters,
                    config=config,
                    confirms=None if repeats is None else repeats.number,
                    forked_from=None if asked.fork is None else (asked.fork.number, asked.fork.step),
                    now=utc_now(),
                )
            )
            if why_not is not None:
                self._end(asked.number, _End(TrialState.FAILED, FailureReason.LOST, why_not))
                return None
            if repeats is None and asked.fork is None:  # else the like of it has been trained before
                self._never_launched.add(asked.number)
        if asked.number in self._never_launched:
            config = TrialConfig.from_json(self._configs[asked.number])
            why = self._feasibility.why_infeasible(asked.number, config)
            if why is not None:
                self._end(asked.number, _End(TrialState.FAILED, FailureReason.INFEASIBLE, why))
                return None
            self._never_launched.discard(asked.number)
        self._ordered.add(asked.number)
        return TrialOrder(
            asked.number,
            self._configs[asked.number],
            text_of(self._checkpoint_directory(asked.number)),
            self._size,
            report_timeout_seconds=self._plan.specification.training.report_timeout_seconds,
            until_step=asked.until,
            begins_at_step=0 if asked.fork is None else asked.fork.step,
        )

    def _fork(self, asked: Start, config: TrialConfig) -> str | None:
        """Gives a fork its parent's checkpoint, before it is stored: one that is stored has it. Why that failed.

        Raises:
            RunEnded: the run is to begin nothing more.
        """
        if asked.fork is None:
            return None
        ending = self._ending()
        if ending is not None:
            raise RunEnded(ending)
        # They import torch.
        from trainers.checkpoints import CheckpointMismatch, CheckpointMissing, StoreFailed, fork_checkpoint

        source = self._checkpoint_directory(asked.fork.number)
        try:
            fork_checkpoint(source, self._checkpoint_directory(asked.number), step=asked.fork.step, config=config)
        except (CheckpointMissing, CheckpointMismatch, OSError, StoreFailed) as error:
            logger.warning("trial %d of job %s cannot begin: %s", asked.number, self._lease.job_id, error)
            return f"cannot begin where trial {asked.fork.number} was at step {asked.fork.step}: {error}"
        return None

    def give_up(self, asked: GiveUp) -> None:
        """Ends a paused trial that is not worth going on with."""
        self._end(asked.number, _End(TrialState.PRUNED, detail=asked.why))

    def flush(self) -> None:
        """Writes the measurements that wait."""
        self.write(lambda _session: None)

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Runs at every turn of Tune's loop, several times a second."""
        self.turn()

    def recall(self, number: int) -> bool:
        """Whether a trial that was ordered, and that Tune has not got yet, was ended meanwhile: a user stopped it.

        Does a turn's work, too: Tune's loop does not turn while it has no trial and waits for one.
        """
        self.turn()
        if number not in self._to_stop():
            return False
        self._end(number, _End(TrialState.CANCELLED, detail=STOPPED))
        return True

    def turn(self) -> None:
        """What is to be done several times a second.

        Raises:
            RunEnded: something ends the run.
        """
        ending = self._ending()
        if ending is not None:
            raise RunEnded(ending)
        if self._pace.is_time_to_close(self._seconds_left()):
            self._policy.close()
        # One that Tune has ends at its next measurement: its ranks cannot be interrupted in the middle of a step.
        for number in (self._to_stop() & self._configs.keys()) - self._ordered:
            self._end(number, _End(TrialState.CANCELLED, detail=STOPPED))

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        number = TrialOrder.from_tune(trial.config).number
        self.write(lambda session: run.start_trial(session, self._lease, number, now=utc_now()))

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        number, report = TrialOrder.from_tune(trial.config).number, TrialReport.from_tune(result)
        if report.measurement is not None:
            self._pending.setdefault(number, []).append(report.measurement)
            self._pace.measured(number, report.measurement.step)
            if report.kind == "measured":
                # Before the trial goes on, and with it the next checkpoint: a run that dies in between would leave a
                # gap in the curve. The last measurement is written with the trial's end.
                self.flush()

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """A trial gave its last report, or the pruner stopped it."""
        order, report = TrialOrder.from_tune(trial.config), TrialReport.from_tune(trial.last_result)
        if report.trace:
            logger.warning("trial %d of job %s failed:\n%s", order.number, self._lease.job_id, report.trace)
        self._end(order.number, self._end_of(order.number, report))
        self._stop_if_hopeless()

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """The trainable's own process died, or its machine."""
        order = TrialOrder.from_tune(trial.config)
        self._end(order.number, self._failure(order.number, FailureReason.LOST, "its process or its machine was lost"))

    def _end_of(self, number: int, report: TrialReport) -> _End:
        if report.measurement is not None and self._plan.metric not in report.measurement.metrics:
            given = ", ".join(report.measurement.metrics)
            detail = f"the workload did not measure {self._plan.metric!r}, only: {given}"
            return self._failure(number, FailureReason.ERROR, detail)
        if report.measurement is not None:
            broken = violation(
                self._plan.specification.constraints, report.measurement.metrics, is_last=report.kind == "completed"
            )
            if broken is not None:
                return _End(TrialState.FAILED, FailureReason.INFEASIBLE, broken)
        if report.kind != "failed":
            self._feasibility.fitted(number)
        match report.kind:
            case "completed":
                self._pruner.report(number, report)
                return _End(TrialState.COMPLETED)
            case "failed":
                assert report.reason is not None
                return self._failure(number, report.reason, report.detail or "")
            case "measured" if self._pruner.last_decision(number) is Decision.PAUSE:
                return _End(TrialState.QUEUED, detail="paused: others are tried before it goes on", policy_knows=True)
            case "measured":
                return _End(TrialState.PRUNED)

    def _failure(self, number: int, reason: FailureReason, detail: str) -> _End:
        # As it will be stored, so that a later run finds the same errors alike.
        verdict = self._retries.judge(number, reason, detail[:MAX_DETAIL_LENGTH])
        if reason is FailureReason.OUT_OF_MEMORY:
            self._feasibility.ran_out(number, TrialConfig.from_json(self._configs[number]))
        if verdict.reason is None:
            logger.warning("trial %d of job %s: %s", number, self._lease.job_id, verdict.detail)
            return _End(TrialState.QUEUED, detail=verdict.detail)
        return _End(TrialState.FAILED, verdict.reason, verdict.detail)

    def _stop_if_hopeless(self) -> None:
        """Raises: JobImpossible: the same error ended too many trials."""
        failure = self._retries.why_to_stop()
        if failure is not None:
            raise JobImpossible(failure)

    def _end(self, number: int, end: _End) -> None:
        if number in self._to_stop() and end.state in (TrialState.QUEUED, TrialState.PRUNED):
            end = _End(TrialState.CANCELLED, detail=STOPPED)
        detail = None if end.detail is None else end.detail[:MAX_DETAIL_LENGTH]
        if end.state is not TrialState.QUEUED:
            self.write(
                lambda session: run.finish_trial(
                    session, self._lease, number, end.state, reason=end.reason, detail=detail, now=utc_now()
                )
            )
            self._configs.pop(number, None)
            self._collector.collect()
        else:
            setbacks = self._retries.setbacks(number)
            self.write(
                lambda session: run.requeue_trial(
                    session,
                    self._lease,
                    number,
                    detail=detail or "",
                    losses=setbacks.losses,
                    memory_failures=setbacks.memory_failures,
                    now=utc_now(),
                )
            )
        self._ordered.discard(number)
        self._pace.stopped(number)
        if not end.policy_knows:
            completed = end.state is TrialState.COMPLETED
            value, *further = self._pruner.last_values(number) if completed else (None,)
            self._policy.tell(number, end.state, value, end.reason, further=further)

    def _checkpoint_directory(self, number: int) -> Place:
        return self._checkpoints / str(number)

    def write(self, write: Write) -> None:
        """Writes the waiting measurements and then `write`, in one transaction.

        Raises:
            RunEnded: the job is no longer this run's.
        """
        batch = [run.TrialMeasurements(number, reported) for number, reported in self._pending.items()]

        def all_of_it(session: Any) -> None:
            if batch:
                run.record_measurements(session, self._lease, batch, now=utc_now())
            write(session)

        try:
            write_with_retries(
                self._database, all_of_it, give_up_seconds=OUTAGE_SECONDS, may_wait=lambda: self._ending() is None
            )
        except LeaseLost as error:
            raise RunEnded(Ending.LEASE_LOST) from error
        except RunAskedToEnd as error:
            raise RunEnded(Ending.ASKED) from error
        self._pending.clear()
