"""The orders of a run: requests of the policy are stored and turned into orders for a trainable."""

from __future__ import annotations

import logging
from dataclasses import replace

from service.domain import FailureReason, TrialState
from service.scheduler.cluster.group_size import GroupSize
from service.scheduler.kept_weights import WeightsPlaces
from service.scheduler.output.files import OutputPlaces
from service.scheduler.policy.feasibility import Feasibility
from service.scheduler.policy.protocol import Done, Fork, GiveUp, Policy, Resume, Start, Wait
from service.scheduler.tune.journal import Journal
from service.scheduler.tune.messages import TrialOrder
from service.scheduler.tune.open_trials import OpenTrials, TrialEnd
from service.scheduler.tune.run_end import Ending, JobImpossible, RunEnded, Signals
from service.specification.planning import JobPlan
from service.use_cases import run
from trainers.config import TrialConfig
from trainers.data.roots import DataRoots
from trainers.storage import text_of
from trainers.storage.full_disks import lacks_room

logger = logging.getLogger(__name__)


class Orders:
    """Turns the policy's requests into orders; trials that cannot begin end here."""

    def __init__(
        self,
        plan: JobPlan,
        journal: Journal,
        trials: OpenTrials,
        signals: Signals,
        *,
        size: GroupSize,
        feasibility: Feasibility,
        data_roots: DataRoots | None = None,
        output: OutputPlaces | None = None,
        weights: WeightsPlaces | None = None,
    ) -> None:
        self._plan = plan
        self._journal = journal
        self._trials = trials
        self._signals = signals
        self._size = size
        self._feasibility = feasibility
        self._data_roots = data_roots
        self._output = output
        self._weights = weights

    def next(self, policy: Policy) -> TrialOrder | None:
        """The order for the trial that a policy wants tried next; None: it waits for others.

        Raises:
            JobImpossible: as `order`.
            RunEnded: every trial has ended, or the run must not begin more.
        """
        while True:
            match policy.ask():
                case Start() | Resume() as asked:
                    order = self.order(asked)
                    if order is not None:
                        return order
                case GiveUp(number, why):  # a paused trial that is not worth going on with
                    self._trials.end(number, TrialEnd(TrialState.PRUNED, detail=why))
                case Wait():
                    return None
                case Done(is_early):
                    raise RunEnded(Ending.DONE_EARLY if is_early else Ending.DONE)

    def order(self, asked: Start | Resume) -> TrialOrder | None:
        """The order for a trial that the policy asked for; a new one is stored first. None: it cannot fit, and ended.

        Raises:
            JobImpossible: the search space allows a value that no trial config does.
            RunEnded: the run is to begin nothing more.
        """
        number = asked.number
        why_not = self._begin(asked) if isinstance(asked, Start) else None
        if why_not is not None:
            self._trials.end(number, TrialEnd(TrialState.FAILED, FailureReason.LOST, why_not))
            return None
        if number in self._trials.never_launched:
            why = self._feasibility.why_infeasible(number, self._trials.config(number))
            if why is not None:
                self._trials.end(number, TrialEnd(TrialState.FAILED, FailureReason.INFEASIBLE, why))
                return None
            self._trials.never_launched.discard(number)
        self._trials.ordered.add(number)
        return TrialOrder(
            number,
            self._trials.config(number),
            text_of(self._trials.directory(number)),
            self._size,
            data_roots=self._data_roots,
            report_timeout_seconds=self._plan.specification.training.report_timeout_seconds,
            until_step=asked.until,
            begins_at_step=0 if asked.fork is None else asked.fork.step,
            output=None if self._output is None else self._output.of_trial(number),
            weights_directory=None if self._weights is None else self._weights.of_trial(number),
        )

    def _begin(self, asked: Start) -> str | None:
        """Stores a new trial. Why it cannot begin nevertheless; None: it can.

        Raises:
            JobImpossible, RunEnded: as `order`.
        """
        config = self._config_of(asked)
        self._trials.add(asked.number, config)
        why_not = None if asked.fork is None else self._give_checkpoint(asked.number, asked.fork, config)
        self._journal.write(
            lambda session: run.add_trial(
                session,
                self._journal.lease,
                number=asked.number,
                phase=asked.phase,
                parameters=asked.parameters,
                config=config,
                confirms=None if asked.repeats is None else asked.repeats.number,
                forked_from=None if asked.fork is None else (asked.fork.number, asked.fork.step),
                now=self._journal.now(),
            )
        )
        if asked.repeats is not None and self._weights is not None:
            self._weights.confirming.add(asked.number)
        if asked.repeats is None and asked.fork is None:  # otherwise a similar trial has been trained before
            self._trials.never_launched.add(asked.number)
        return why_not

    def _config_of(self, asked: Start) -> TrialConfig:
        repeats = asked.repeats
        seed = None if repeats is None else repeats.seed
        like = repeats or asked.fork
        try:
            config = self._plan.trial_config(asked.side, dict(asked.parameters), seed=seed)
            # If the trial with the same config or checkpoint did not fit, this one would not either.
            return config if like is None else replace(config, accumulation_steps=self._trials.parts(like.number))
        except ValueError as error:
            raise JobImpossible(
                f"the {asked.side} space gave trial {asked.number} an impossible config: {error}"
            ) from error

    def _give_checkpoint(self, number: int, fork: Fork, config: TrialConfig) -> str | None:
        """Gives a fork its parent's checkpoint before the fork is stored, so a stored fork has it. Returns the reason
        if it failed.

        Raises:
            RunEnded: the run is to begin nothing more.
        """
        self._raise_if_ended()
        # They import torch.
        from trainers.checkpoints import CheckpointMismatch, CheckpointMissing, StoreFailed, fork_checkpoint

        source = self._trials.directory(fork.number)
        try:
            fork_checkpoint(source, self._trials.directory(number), step=fork.step, config=config)
        except (CheckpointMissing, CheckpointMismatch, OSError, StoreFailed) as error:
            if lacks_room(error):
                self._signals.look_for_room()
                self._raise_if_ended()
            logger.warning("cannot begin: %s", error, extra={"trial": number})
            return f"cannot begin where trial {fork.number} was at step {fork.step}: {error}"
        return None

    def _raise_if_ended(self) -> None:
        ending = self._signals.ending()
        if ending is not None:
            raise RunEnded(ending)
