"""A warm group of ranks: one Ray actor per rank, one process group, many trials one after the other.

Starting a group costs seconds (processes, imports, rendezvous); starting the next trial in it costs milliseconds. While
a measurement is being processed, the ranks already train up to the next one.
"""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, OutOfMemoryError, RayActorError, RayError
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from service.domain import FailureReason
from service.places import NodePlace, places_of
from service.scheduler.cluster.group_size import GroupSize
from service.scheduler.cluster.ray_internals import death_in_words
from service.scheduler.cluster.worker_exits import exit_status
from service.scheduler.exit_statuses import in_words
from service.scheduler.output.files import OutputPlace
from service.scheduler.ranks.rank import MESSAGES, JoinedRank, Rank, RankFailure, RankOutcome
from trainers.config import TrialConfig
from trainers.data.roots import DataRoots
from trainers.identity.values import TrialIdentity

logger = logging.getLogger(__name__)

GIVE_UP_SECONDS = 30.0
"""Seconds that ranks may take to leave a trial that is given up: a step, or an evaluation. After that a new group is
faster."""
BLAME_SECONDS = 2.0
"""Seconds to wait after a rank's failure for another rank to turn out to be the cause: a dead rank makes its peers
fail."""


class RankGroup:
    """The ranks of a placement group, bundle by bundle; created and driven by one process.

    Nothing waits before `advance`, so the processes start and import while the caller continues.
    """

    def __init__(self, size: GroupSize, placement_group: PlacementGroup) -> None:
        self.num_trials = 0
        """Trials started in this group."""
        self.is_usable = True
        """False: a rank died or failed alone; only `close` may follow."""
        actor_class: Any = ray.remote(concurrency_groups={MESSAGES: 1})(Rank)  # type: ignore[call-overload]  # untyped
        group = f"rank-{secrets.token_hex(8)}"
        self._ranks: list[Any] = [
            actor_class.options(
                num_cpus=size.cpus_per_rank,
                num_gpus=size.gpus_per_rank,
                memory=size.memory_per_rank or None,
                resources=dict(size.custom_per_rank),
                max_restarts=0,
                name=f"{group}-{index}",  # so that a later run of the job finds it
                scheduling_strategy=PlacementGroupSchedulingStrategy(
                    placement_group, placement_group_bundle_index=index
                ),
            ).remote(num_threads=size.threads_per_rank)
            for index in range(size.world_size)
        ]
        meeting_point = self._ranks[0].meeting_point.remote() if size.world_size > 1 else ""
        self._joined: list[Any] = [
            actor.join.remote(rank=rank, world_size=size.world_size, meeting_point=meeting_point)
            for rank, actor in enumerate(self._ranks)
        ]
        self._pending: list[Any] = list(self._joined)
        self._intervals: deque[list[Any]] = deque()
        """The calls to train the present interval, and the one ahead."""
        self._num_taken = 0

    def start(
        self,
        config: TrialConfig,
        checkpoint_directory: str | None,
        *,
        data_roots: DataRoots | None = None,
        until_step: int | None = None,
        begins_at_step: int = 0,
        output: OutputPlace | None = None,
        weights_directory: str | None = None,
    ) -> None:
        """Begins the next trial, which trains ahead of the caller up to `until_step`; the present one is dropped.

        Args:
            checkpoint_directory: None: it takes no checkpoints.
            data_roots: the directories that the trial may read; None: all that its ranks may.
            until_step: the step at which it will be paused; the checkpoint of that step is on disk when it is measured.
            begins_at_step: of a fork, the step of the checkpoint of another trial that the directory must hold.
            output: where the ranks write their output; None: where Ray sends it.
            weights_directory: where the trained weights are to lie once it has been measured at its last step; None:
                they are not kept.
        """
        self.drop()
        self.num_trials += 1
        self._num_taken = 0
        self._pending += [
            rank.start.remote(
                self.num_trials,
                config,
                checkpoint_directory,
                data_roots=data_roots,
                until_step=until_step,
                begins_at_step=begins_at_step,
                output=output,
                weights_directory=weights_directory,
            )
            for rank in self._ranks
        ]

    def advance(self, *, timeout_seconds: float | None = None) -> RankOutcome:
        """Trains up to the next measurement on all ranks; returns the measurement of rank 0, or the failure that caused
        the others.

        They immediately continue with the following interval. Its measurement comes with the next call; until then no
        checkpoint of it is taken. If `timeout_seconds` pass without measurement or failure, the trial has failed and
        the group is not usable.
        """
        if self._num_taken:
            for rank in self._ranks:
                rank.take.remote(self.num_trials, self._num_taken)
        while len(self._intervals) < 2:
            self._intervals.append([rank.advance.remote() for rank in self._ranks])
        deadline = math.inf if timeout_seconds is None else time.monotonic() + timeout_seconds
        steps = self._intervals.popleft()
        failure = self._wait(self._pending, deadline) or self._wait(steps, deadline)
        self._pending = []
        if failure is not None:
            self.is_usable = failure.group_is_usable
            return failure
        self._num_taken += 1
        outcome: RankOutcome = ray.get(steps[0])
        return outcome

    def identity(self) -> TrialIdentity | None:
        """The identity of the present trial, once it has been measured; None: rank 0 is gone, which `advance` tells."""
        try:
            found: TrialIdentity | None = ray.get(self._ranks[0].identity.remote(), timeout=GIVE_UP_SECONDS)
        except (RayError, GetTimeoutError):
            return None
        return found

    def drop(self) -> None:
        """Makes the ranks leave the present trial, all at the same step, instead of training on up to a measurement.

        A rank that does not leave it well makes the group unusable.
        """
        if not self._intervals:
            return
        for rank in self._ranks:
            rank.give_up.remote(self.num_trials)
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while self._intervals and self.is_usable:
            failure = self._wait(self._intervals.popleft(), deadline)
            if failure is not None:
                logger.info("a trial that was given up failed: %s", failure.detail)
                self.is_usable = failure.group_is_usable

    def places(self) -> tuple[NodePlace, ...]:
        """The machines of the ranks, with the GPUs that these have; empty: not all of them have joined."""
        try:
            joined: list[JoinedRank] = ray.get(self._joined, timeout=0)
        except (RayError, GetTimeoutError):
            return ()
        return places_of(rank.place for rank in joined)

    def process_ids(self) -> list[int]:
        """The process id of each rank, by rank, on its own machine; for tests, which kill ranks from outside."""
        joined: list[JoinedRank] = ray.get(self._joined)
        return [rank.process_id for rank in joined]

    def close(self) -> None:
        """Ends the ranks at once, whatever they do. Leaving the process group would need all of them to be well."""
        for rank in self._ranks:
            ray.kill(rank)

    def _wait(self, calls: Sequence[Any], deadline: float) -> RankFailure | None:
        """Waits for a call on each rank until the monotonic clock says `deadline`; None if all went well."""
        failures: list[RankFailure] = []
        remaining = list(calls)
        while remaining:
            left = max(deadline - time.monotonic(), 0.0)
            timeout = BLAME_SECONDS if failures else left if math.isfinite(left) else None
            done, remaining = ray.wait(remaining, timeout=timeout)
            failures += [failure for call in done if (failure := self._failure_of(call, calls.index(call))) is not None]
            if failures and not done:
                break
            if not done:
                silent = [rank for rank, call in enumerate(calls) if call in remaining]
                return RankFailure(FailureReason.ERROR, f"no measurement came in the time allowed; ranks {silent} hang")
        if not failures:
            return None
        together = len(failures) == len(calls)
        guilty = min(failures, key=_blame)
        if guilty.group_is_usable and not together:
            return replace(guilty, group_is_usable=False)
        return guilty

    def _failure_of(self, call: Any, index: int) -> RankFailure | None:
        """The failure that a finished call, one of those on each rank, ended with."""
        rank = index % len(self._ranks)
        try:
            outcome = ray.get(call, timeout=BLAME_SECONDS)
        except OutOfMemoryError as error:
            return RankFailure(
                FailureReason.OUT_OF_MEMORY, f"a rank was ended because its machine ran out of memory: {error}"
            )
        except RayActorError as error:
            status, how = self._death(rank, error)
            return RankFailure(FailureReason.LOST, f"rank {rank} died: {how}", exit_status=status)
        except (RayError, GetTimeoutError) as error:
            return RankFailure(FailureReason.LOST, f"a rank could not be set up: {error}")
        return outcome if isinstance(outcome, RankFailure) else None

    def _death(self, rank: int, error: RayActorError) -> tuple[int | None, str]:
        """The exit status of a rank's process that has ended, if it is known, and its death in words.

        If the status is known, the words are the same for each such death: Ray's own words depend on which of its
        processes has noticed it first.
        """
        try:
            joined: JoinedRank = ray.get(self._joined[rank], timeout=0)
        except (RayError, GetTimeoutError):  # it had not joined yet
            return None, death_in_words(str(error))
        status = exit_status(joined.process_id)
        if status is None:
            return None, death_in_words(str(error))
        return status, f"process {joined.process_id} on {joined.address}: {in_words(status)}"


def _blame(failure: RankFailure) -> tuple[bool, int]:
    """Order of guilt: failures that another rank's failure cannot have caused come first."""
    order = (
        FailureReason.OUT_OF_MEMORY,
        FailureReason.LOST,
        FailureReason.STORE_FAILED,
        FailureReason.DIVERGED,
        FailureReason.ERROR,
        FailureReason.INFEASIBLE,
    )
    return failure.is_of_survivor, order.index(failure.reason)
