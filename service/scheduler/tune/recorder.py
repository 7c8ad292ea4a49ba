"""The recorder of a run: Ray Tune calls it when trials begin, report and end, and it writes that to SQL."""

from __future__ import annotations

import logging
from typing import Any

from ray import tune

from service.domain import FailureReason, TrialState
from service.scheduler.policy.protocol import Policy
from service.scheduler.policy.time_limit import Pace
from service.scheduler.tune.journal import Journal
from service.scheduler.tune.judgement import Judgement
from service.scheduler.tune.messages import TrialOrder, TrialReport, TuneAdapter
from service.scheduler.tune.open_trials import OpenTrials, TrialEnd
from service.scheduler.tune.run_end import RunEnded, Signals
from service.specification.identity import stored_identity
from service.specification.planning import JobPlan
from service.use_cases import run

logger = logging.getLogger(__name__)


class Recorder(TuneAdapter, tune.Callback):
    """Writes what Tune reports into the job's rows."""

    def __init__(
        self,
        plan: JobPlan,
        journal: Journal,
        trials: OpenTrials,
        judgement: Judgement,
        policy: Policy,
        signals: Signals,
        pace: Pace,
    ) -> None:
        """Prepares the record of one run.

        Args:
            signals: asked at every turn of Tune's loop.
            pace: tells when the time left is too short for further trials.
        """
        self._plan = plan
        self._journal = journal
        self._trials = trials
        self._judgement = judgement
        self._policy = policy
        self._signals = signals
        self._pace = pace

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Runs at every turn of Tune's loop, several times a second."""
        self.turn()

    def recall(self, number: int) -> bool:
        """True if a trial that was ordered, and that Tune does not have yet, was ended because a user stopped it.

        Does a turn's work, too: Tune's loop does not turn while it has no trial and waits for one.
        """
        self.turn()
        return self._trials.recall(number)

    def turn(self) -> None:
        """Checks the signals, the time left and the trials to stop, several times a second.

        Raises:
            RunEnded: something ends the run.
        """
        ending = self._signals.ending()
        if ending is not None:
            raise RunEnded(ending)
        if self._pace.is_time_to_close(self._signals.seconds_left()):
            self._policy.close()
        self._trials.stop_those_asked()

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        number = TrialOrder.from_tune(trial.config).number
        self._journal.write(
            lambda session: run.start_trial(session, self._journal.lease, number, now=self._journal.now())
        )

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        order, report = TrialOrder.from_tune(trial.config), TrialReport.from_tune(result)
        number = order.number
        if report.places:
            lease, places = self._journal.lease, report.places
            self._journal.keep(lambda session: run.record_places(session, lease, number, places))
        if report.measurement is not None:
            step = report.measurement.step
            identity = None if report.identity is None else stored_identity(self._plan, report.identity)
            self._journal.note(number, report.measurement, identity)
            self._trials.measured(number, report.measurement)
            config = order.config
            length = self._plan.length.of_stored(num_steps=config.num_steps, batch_size=config.batch_size)
            done = step if length is None else length.done_at(step)
            self._pace.measured(number, done, optimizer=config.optimizer.name)
            if report.kind == "measured":
                # Written before the trial continues and takes the next checkpoint: a run that dies in between would
                # leave a gap in the curve. The last measurement is written with the trial's end.
                self._journal.flush()

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Records the end of a trial that gave its last report or that the pruner stopped."""
        order, report = TrialOrder.from_tune(trial.config), TrialReport.from_tune(trial.last_result)
        if report.trace:
            logger.warning("the trial failed:\n%s", report.trace, extra={"trial": order.number})
        if report.reason is FailureReason.STORE_FAILED:
            self._signals.look_for_room()
            self.turn()  # a run that ends leaves the trial unchanged, to continue from its checkpoint
        self._end(order.number, self._judgement.of_report(order.number, report))
        self._judgement.stop_if_hopeless()

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Records that the trainable's own process died, or its machine."""
        number = TrialOrder.from_tune(trial.config).number
        detail = "its process or its machine was lost"
        self._end(number, self._judgement.of_failure(number, FailureReason.LOST, detail))

    def _end(self, number: int, end: TrialEnd) -> None:
        if end.state is TrialState.QUEUED and not end.policy_knows:
            logger.warning("%s", end.detail, extra={"trial": number})
        self._trials.end(number, end)
        self._pace.stopped(number)
