"""The open trials of a run, those that have not ended: their configs, their checkpoints, and how each leaves Tune."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from types import MappingProxyType

from service.domain import FailureReason, TrialState
from service.scheduler.checkpoint_storage import Collector, remove
from service.scheduler.live_trackers import LiveTrackers
from service.scheduler.policy.protocol import Policy
from service.scheduler.policy.retries import Setbacks
from service.scheduler.tune.journal import Journal
from service.scheduler.tune.run_end import Signals
from service.specification.external.messages import MAX_DETAIL_LENGTH
from service.use_cases import run
from service.use_cases.transitions import STOPPED
from trainers.config import Measurement, TrialConfig
from trainers.storage import Place


@dataclass(frozen=True, slots=True)
class TrialEnd:
    """The end of a trial's stay in Tune; state queued: it comes back."""

    state: TrialState
    reason: FailureReason | None = None
    detail: str | None = None
    values: Sequence[float] = ()
    """Objectives of a completed trial at its last measurement, in the order of the job."""
    setbacks: Setbacks = field(default_factory=Setbacks)
    """Setbacks of one that comes back."""
    config: TrialConfig | None = None
    """The config of one that comes back, if it goes on with another one."""
    begins_anew: bool = False
    """True: one that comes back does so without its checkpoints."""
    policy_knows: bool = False


class OpenTrials:
    """Ends trials, in SQL and for the policy, and keeps those that have not ended."""

    def __init__(
        self,
        journal: Journal,
        policy: Policy,
        signals: Signals,
        *,
        configs: Mapping[int, TrialConfig],
        checkpoints: Place,
        never_launched: Set[int] = frozenset(),
        parts: Mapping[int, int] = MappingProxyType({}),
        trackers: LiveTrackers | None = None,
    ) -> None:
        """Takes the stored trials, and removes the checkpoints of all other trials.

        Args:
            configs: the configs of the unfinished trials, by number.
            checkpoints: the place of the job's checkpoints; each trial gets a directory there, named by its number.
            never_launched: unfinished trials that no earlier run has launched, but for forks and confirmation.
            parts: `accumulation_steps` of all trials, by number.
            trackers: None: the job has none.
        """
        self._journal = journal
        self._policy = policy
        self._signals = signals
        self._configs = dict(configs)
        self._parts = dict(parts)
        self._checkpoints = checkpoints
        self._trackers = trackers
        self.never_launched = set(never_launched)
        """Trials that may still be found infeasible before they are launched."""
        self.ordered: set[int] = set()
        """Trials that Tune has, running or about to."""
        self._collector = Collector(checkpoints, unfinished=self._configs)
        # A run can die between a trial's end and this, or after it has given a fork a checkpoint and before the fork is
        # stored: then another trial may have its number now.
        self._collector.collect_now(not_launched=never_launched)

    def add(self, number: int, config: TrialConfig) -> None:
        """Adds a new trial. Call it before the trial has files, which would otherwise be removed."""
        self._configs[number] = config
        self._parts[number] = config.accumulation_steps

    def parts(self, number: int) -> int:
        """The parts of each batch that a trial takes or took: more than the job's if it ran out of memory."""
        return self._parts[number]

    def config(self, number: int) -> TrialConfig:
        """The config of an open trial."""
        return self._configs[number]

    def directory(self, number: int) -> Place:
        """The place of a trial's checkpoints."""
        return self._checkpoints / str(number)

    def measured(self, number: int, measurement: Measurement) -> None:
        """Passes a measurement of an open trial on to the job's trackers, if it has any."""
        if self._trackers is not None:
            self._trackers.measured(number, self._configs[number], measurement)

    def end(self, number: int, end: TrialEnd) -> None:
        """Ends a trial or puts it back in the queue; one that a user has asked to stop is cancelled instead.

        Raises:
            RunEnded: the job is no longer this run's.
        """
        if number in self._signals.to_stop() and end.state in (TrialState.QUEUED, TrialState.PRUNED):
            end = TrialEnd(TrialState.CANCELLED, detail=STOPPED)
        if end.state is TrialState.QUEUED:
            self._requeue(number, end)
        else:
            self._finish(number, end)
        self.ordered.discard(number)
        if self._trackers is not None:
            self._trackers.ended(number, end.state)
        if not end.policy_knows:
            self._policy.tell(number, end.state, end.values, end.reason)

    def stop_those_asked(self) -> None:
        """Ends the trials that users have asked to stop and that Tune does not have.

        One that Tune has ends at its next measurement: its ranks cannot be interrupted in the middle of a step.
        """
        for number in (self._signals.to_stop() & self._configs.keys()) - self.ordered:
            self.end(number, TrialEnd(TrialState.CANCELLED, detail=STOPPED))

    def recall(self, number: int) -> bool:
        """True if a trial that was ordered, and that Tune does not have yet, was ended because a user stopped it."""
        if number not in self._signals.to_stop():
            return False
        self.end(number, TrialEnd(TrialState.CANCELLED, detail=STOPPED))
        return True

    def _finish(self, number: int, end: TrialEnd) -> None:
        detail = None if end.detail is None else end.detail[:MAX_DETAIL_LENGTH]
        self._journal.write(
            lambda session: run.finish_trial(
                session,
                self._journal.lease,
                number,
                end.state,
                reason=end.reason,
                detail=detail,
                now=self._journal.now(),
            )
        )
        self._configs.pop(number, None)
        self._collector.collect()

    def _requeue(self, number: int, end: TrialEnd) -> None:
        if end.config is not None:
            self.add(number, end.config)
        if end.begins_anew:
            remove(self.directory(number))
        self._journal.write(
            lambda session: run.requeue_trial(
                session,
                self._journal.lease,
                number,
                detail=(end.detail or "")[:MAX_DETAIL_LENGTH],
                losses=end.setbacks.losses,
                memory_failures=end.setbacks.memory_failures,
                config=end.config,
                now=self._journal.now(),
            )
        )
