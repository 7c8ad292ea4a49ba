"""The time of a step of a job's configs, measured on its own ranks before trials that take equally long begin."""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import ray.util

from search_spaces import Scalar
from search_spaces.optimizers import ARGUMENTS
from service.domain import FailureReason, Side, side_of
from service.scheduler.cluster.group_size import GroupSize
from service.scheduler.policy.feasibility import Feasibility
from service.scheduler.policy.retries import divided
from service.scheduler.ranks.rank import RankFailure
from service.scheduler.ranks.rank_group import RankGroup
from service.scheduler.tune.journal import Journal
from service.scheduler.tune.run_end import JobImpossible, RunEnded, Signals
from service.scheduler.tune.sharing import Sharing
from service.specification.length import takes_equal_seconds
from service.specification.planning import JobPlan
from service.specification.trial_lengths.step_times import PERIODS, StepTime, StepTimes, timed_configs, timed_values
from service.store.models import Trial
from service.use_cases import run
from trainers.config import TrialConfig
from trainers.data.roots import DataRoots

logger = logging.getLogger(__name__)

T = TypeVar("T")

TURN_SECONDS = 0.1
"""Seconds between two looks at what may end the run."""
LEAST_STEPS = 20
"""Fewest steps that are timed, after as many that are not."""
UNKNOWN_PERIOD = 50
"""Steps that are timed if a config does not say how often its optimizer refreshes: no default is longer."""
SHORT_SECONDS = 5.0
"""Configs whose timed steps take less than this altogether are timed `ROUNDS` times: a moment of other work weighs."""
ROUNDS = 3
"""The least of so many counts, because other work only adds."""
LOST_GROUPS = 3
"""Rank groups that may be lost, with their machine for instance, before the job fails."""


@dataclass(slots=True)
class _Timed:
    """A config whose steps are timed."""

    side: Side
    values: dict[str, Scalar]
    """The values on which the time depends."""
    config: TrialConfig
    """The config of a short trial: after the first half of its steps it is measured, and at its end."""
    seconds: list[float] = field(default_factory=list)
    """The time of a step, in each round."""
    failure: str = ""
    """The reason why they could not be timed; empty: none is known."""

    @property
    def is_short(self) -> bool:
        """True if its timed steps take so little that one round says little."""
        return bool(self.seconds) and self.seconds[0] * self.config.num_steps / 2 < SHORT_SECONDS


def with_step_times(
    plan: JobPlan,
    trials: Sequence[Trial],
    journal: Journal,
    signals: Signals,
    *,
    size: GroupSize,
    feasibility: Feasibility,
    sharing: Sharing | None,
    data_roots: DataRoots,
) -> JobPlan:
    """The plan of a job whose trials take equally long, with the time of their steps; the same plan if they need not,
    or if trials began before these were measured. The times are stored, for its later runs.

    Args:
        trials: the job's; those that users proposed meanwhile get the steps that follow.

    Raises:
        RunEnded: the run has to end.
        JobImpossible: no config of a side can be trained.
    """
    specification = plan.specification
    has_begun = any(not trial.proposed for trial in trials)
    if has_begun or specification.step_times or not takes_equal_seconds(specification, plan.spaces):
        return plan
    timed = [
        _Timed(side, timed_values(space, values), _short_trial(plan, side, values))
        for side, space in plan.spaces.items()
        for values in timed_configs(space)
    ]
    for number, one in enumerate(timed, start=1):
        one.failure = feasibility.why_infeasible(-number, one.config) or ""
    _Timing(plan, journal, signals, size=size, sharing=sharing, data_roots=data_roots).run(timed)
    measured = [StepTime(side=one.side, parameters=dict(one.values), seconds=_seconds_of(one, timed)) for one in timed]
    specification = specification.model_copy(update={"step_times": measured})
    length = dataclasses.replace(plan.length, step_times=StepTimes(plan.spaces, measured))
    plan = dataclasses.replace(plan, specification=specification, length=length)
    proposed = {trial: side_of(trial.phase, trial.stored_config.optimizer) for trial in trials}
    configs = {trial.number: plan.trial_config(side, dict(trial.parameters)) for trial, side in proposed.items()}
    for trial in proposed:
        trial.config = configs[trial.number].to_json()
    journal.write(lambda session: run.store_step_times(session, journal.lease, specification, configs))
    return plan


class _Timing:
    """Times the steps of configs in one rank group after the other."""

    def __init__(
        self,
        plan: JobPlan,
        journal: Journal,
        signals: Signals,
        *,
        size: GroupSize,
        sharing: Sharing | None,
        data_roots: DataRoots,
    ) -> None:
        self._timeout_seconds = plan.specification.training.report_timeout_seconds
        self._journal, self._signals = journal, signals
        self._size, self._sharing, self._data_roots = size, sharing, data_roots
        self._num_lost = 0

    def run(self, timed: list[_Timed]) -> None:
        """Times all of them, those that take little several times, in turns: what else the machine does hits all."""
        rest = [one for _ in range(ROUNDS) for one in timed]
        while rest:
            with self._group() as group:
                while rest and group.is_usable:
                    one = rest[0]
                    if not one.failure and (not one.seconds or one.is_short):
                        num = sum(bool(other.seconds or other.failure) for other in timed)
                        turn = f", turn {len(one.seconds) + 1} of {ROUNDS}" if one.seconds else ""
                        self._tell(f"the time of a step is measured first: {num} of {len(timed)} configs so far{turn}")
                        if not self._time(group, one):
                            break
                    rest.pop(0)
        self._tell(None)

    def _time(self, group: RankGroup, one: _Timed) -> bool:
        """Trains a short trial; False if it is to be tried again, in another group: its ranks were lost, or had too
        little memory."""
        group.start(one.config, None, data_roots=self._data_roots)
        for _ in range(2):
            outcome = self._waiting(lambda: group.advance(timeout_seconds=self._timeout_seconds))
            if outcome is None:
                one.failure = "training ended before its last step"
                return True
            if isinstance(outcome, RankFailure):
                if outcome.reason is FailureReason.LOST and self._num_lost < LOST_GROUPS:
                    self._num_lost += 1
                    return False
                smaller = divided(one.config, world_size=self._size.world_size)
                if outcome.reason is FailureReason.OUT_OF_MEMORY and smaller is not None:
                    one.config = smaller  # as the trial itself will be
                    return False
                logger.warning("the steps of %s with %s could not be timed: %s", one.side, one.values, outcome.detail)
                one.failure = outcome.detail
                return True
            measured = outcome
        one.seconds.append(measured.metrics["step_seconds"])
        return True

    @contextmanager
    def _group(self) -> Iterator[RankGroup]:
        """A rank group of its own, once it is the job's turn and there is room."""
        while self._sharing is not None and not self._sharing.may_take():
            time.sleep(TURN_SECONDS)
        bundles = [self._size.rank_bundle] * self._size.world_size
        placement_group = ray.util.placement_group(bundles, strategy="PACK")
        try:
            while not placement_group.wait(timeout_seconds=TURN_SECONDS):
                self._turn()
            group = RankGroup(self._size, placement_group)
            try:
                yield group
            finally:
                group.close()
        finally:
            ray.util.remove_placement_group(placement_group)

    def _waiting(self, call: Callable[[], T]) -> T:
        """The result of a call to the ranks, in another thread: meanwhile the run may have to end."""
        found = Future[T]()

        def answer() -> None:
            try:
                found.set_result(call())
            except BaseException as error:  # noqa: BLE001 - it is raised where the result is asked for
                found.set_exception(error)

        threading.Thread(target=answer, daemon=True).start()
        while not wait([found], timeout=TURN_SECONDS).done:
            self._turn()
        return found.result()

    def _turn(self) -> None:
        ending = self._signals.ending()
        if ending is not None:
            raise RunEnded(ending)

    def _tell(self, waiting_for: str | None) -> None:
        journal = self._journal
        journal.write(lambda session: run.tell_waiting(session, journal.lease, waiting_for, now=journal.now()))


def _short_trial(plan: JobPlan, side: Side, values: dict[str, Scalar]) -> TrialConfig:
    """The config of a trial that is measured after a whole refresh period, and at its end, after another one."""
    config = plan.trial_config(side, values)
    given = [value for name in PERIODS if isinstance(value := config.optimizer.arguments.get(name), int)]
    if not given and not ARGUMENTS[config.optimizer.name].keys().isdisjoint(PERIODS):
        given = [UNKNOWN_PERIOD]
    num_timed = min(max([*given, LEAST_STEPS]), -(-config.num_steps // 2))
    return dataclasses.replace(
        config,
        num_steps=2 * num_timed,
        evaluate_every=num_timed,
        evaluate_every_examples=None,
        evaluate_every_epochs=None,
        evaluate_every_seconds=None,
        checkpoint_every=None,
        target=None,
        summaries=(),
    )


def _seconds_of(one: _Timed, timed: list[_Timed]) -> float:
    """The seconds of a step; of a config that failed those of the slowest of its side.

    Raises:
        JobImpossible: all of that side failed.
    """
    of_side = [min(other.seconds) for other in timed if other.side == one.side and other.seconds]
    if not of_side:
        raise JobImpossible(f"the steps of {one.side} could not be timed: {one.failure}")
    return min(one.seconds) if one.seconds else max(of_side)
