"""A warm group of ranks: one Ray actor per rank, one process group, many trials one after the other.

Starting a group costs seconds (processes, imports, rendezvous); starting the next trial in it costs milliseconds. While
a measurement is being dealt with, the ranks already train up to the next one.
"""

from __future__ import annotations

import gc
import logging
import math
import os
import secrets
import socket
import time
import traceback
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import ray
from ray.exceptions import GetTimeoutError, OutOfMemoryError, RayActorError, RayError
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from service.domain import FailureReason
from service.scheduler.policy.retries import STORE_FAILED
from service.scheduler.ranks.rank_consumer import GroupConsumer
from trainers.config import Diverged, InvalidConfig, Measurement, TrialConfig
from trainers.ranks.consumer import GivenUp

logger = logging.getLogger(__name__)

COLLECTIVE_TIMEOUT_SECONDS = 300.0
"""How long a rank waits for the others in a collective before it fails."""
GIVE_UP_SECONDS = 30.0
"""How long the ranks may take to leave a trial that is given up: a step, an evaluation. A new group starts sooner."""
BLAME_SECONDS = 2.0
"""After a rank's failure, how long the others may take to show that it was theirs: a dead rank makes its peers fail."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a trial cannot go on."""

    reason: FailureReason
    detail: str
    """For a person."""
    trace: str = ""
    group_is_usable: bool = False
    """Whether all ranks stopped at the same place, so that the group can train the next trial."""
    is_of_survivor: bool = False
    """Whether a rank only noticed that another one was gone, and knows no cause."""


Outcome: TypeAlias = Measurement | Failure | None
"""What a trial gives next; None: its ranks have nothing more to give."""

MESSAGES = "messages"
"""The calls that a rank hears while it trains. With them, Ray runs no call in a rank's main thread."""


class Rank:
    """One rank, in a process of its own. The first call must be `join`."""

    def __init__(self, *, num_threads: int) -> None:
        # Ray's idle processes, in which an actor can begin at once, have no torch yet: its OpenMP still reads this.
        os.environ["OMP_NUM_THREADS"] = str(num_threads)
        import torch  # imported only where training happens, and after the line above

        torch.set_num_threads(num_threads)
        self._device = "cuda:0" if ray.get_gpu_ids() else "cpu"  # Ray hides all devices but this rank's own
        self._rank, self._world_size = 0, 1
        self._measurements: Iterator[Measurement] = iter(())
        self._consumer = GroupConsumer()
        self._until_step = math.inf
        self._step = 0

    def meeting_point(self) -> str:
        """An address on this rank's machine at which the ranks can meet."""
        with socket.socket() as probe:
            probe.bind(("", 0))
            port = probe.getsockname()[1]
        address = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        return f"tcp://{address}:{port}"

    def join(self, *, rank: int, world_size: int, meeting_point: str) -> int:
        """Joins the process group, if there is more than one rank; this process's id."""
        from trainers.ranks.context import join_process_group  # imports torch

        self._rank, self._world_size = rank, world_size
        if world_size > 1:
            join_process_group(
                rank=rank,
                world_size=world_size,
                init_method=meeting_point,
                device=self._device,
                timeout_seconds=COLLECTIVE_TIMEOUT_SECONDS,
            )
        return os.getpid()

    def start(
        self,
        trial: int,
        config: TrialConfig,
        checkpoint_directory: str,
        *,
        until_step: int | None,
        begins_at_step: int = 0,
    ) -> None:
        """Drops the present trial, if any, and prepares the next; it begins to train with `advance`.

        `checkpoint_directory` is a path or a URI, as `trainers.storage.text_of` gives it.
        """
        from trainers.loop import train  # imports torch
        from trainers.ranks.context import RankContext  # imports torch
        from trainers.storage import place_of

        self.stop()
        self._consumer.begin(trial)
        self._step, self._until_step = 0, math.inf if until_step is None else until_step
        context = RankContext(
            self._rank,
            self._world_size,
            self._device,
            place_of(checkpoint_directory),
            consumer=self._consumer,
            begins_at_step=begins_at_step,
            pause_step=until_step,
        )
        self._measurements = train(config, context)

    def advance(self) -> Outcome:
        """Trains up to the next measurement."""
        if self._step >= self._until_step and not self._consumer.wait():
            return None
        try:
            measurement = next(self._measurements, None)
        except GivenUp:
            return None
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the boundary to a user's own code
            failure = describe_failure(error)
        else:
            if measurement is not None:
                self._step = measurement.step
                self._consumer.give()
            return measurement
        # Not sooner: up to here the error holds the frames it passed through, and with them the trial's model.
        self.stop()
        return failure

    @ray.method(concurrency_group=MESSAGES)
    def take(self, trial: int, num_taken: int) -> None:
        """Hears that so many measurements of a trial have been dealt with, and that the next is wanted."""
        self._consumer.take(trial, num_taken)

    @ray.method(concurrency_group=MESSAGES)
    def give_up(self, trial: int) -> None:
        """Hears that nothing more is wanted of a trial."""
        self._consumer.give_up(trial)

    def stop(self) -> None:
        """Drops the present trial with its model, optimizer and data."""
        self._measurements = iter(())
        gc.collect()  # a model in a cycle would keep its memory while the next one is built
        # What is left are imported libraries, 0.2 s to go through; the next collection passes them over.
        gc.freeze()


def describe_failure(error: BaseException) -> Failure:
    """What an exception of the training loop means for its trial."""
    import torch  # called in the ranks only

    from trainers.memory import peak_bytes
    from trainers.ranks.lost_ranks import is_of_a_lost_rank
    from trainers.storage import StoreFailed

    trace = "".join(traceback.format_exception(error))
    detail = f"{type(error).__name__}: {error}"
    if isinstance(error, Diverged):
        return Failure(FailureReason.DIVERGED, str(error), group_is_usable=True)
    if isinstance(error, InvalidConfig):
        return Failure(FailureReason.ERROR, str(error), trace, group_is_usable=True)
    # The CPU allocator reports exhaustion as a plain RuntimeError.
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error):
        peak = peak_bytes("cuda" if isinstance(error, torch.OutOfMemoryError) else "cpu") / 2**30
        return Failure(FailureReason.OUT_OF_MEMORY, f"{detail} (this rank's peak: {peak:.2f} GiB)", trace)
    if is_of_a_lost_rank(error):
        return Failure(FailureReason.LOST, f"another rank was lost: {detail}", trace, is_of_survivor=True)
    if isinstance(error, StoreFailed):
        return Failure(FailureReason.LOST, f"{STORE_FAILED}{error}", trace)
    return Failure(FailureReason.ERROR, detail, trace)


@dataclass(frozen=True, slots=True)
class GroupSize:
    """How many ranks a trial has, and what each of them gets."""

    world_size: int
    cpus_per_rank: float
    gpus_per_rank: float
    memory_per_rank: int = 0
    """Bytes."""
    custom_per_rank: Mapping[str, float] = field(default_factory=dict)

    @property
    def rank_bundle(self) -> dict[str, float]:
        """What a rank takes from the cluster, by Ray's names."""
        amounts = {
            "CPU": self.cpus_per_rank,
            "GPU": self.gpus_per_rank,
            "memory": float(self.memory_per_rank),
            **self.custom_per_rank,
        }
        return {name: amount for name, amount in amounts.items() if amount}

    @property
    def threads_per_rank(self) -> int:
        return max(1, int(self.cpus_per_rank))


class RankGroup:
    """The ranks of a placement group, bundle by bundle; created and driven by one process.

    Nothing waits until `advance`, so the processes start and import while the caller goes on.
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
        checkpoint_directory: str,
        *,
        until_step: int | None = None,
        begins_at_step: int = 0,
    ) -> None:
        """Begins the next trial, which trains ahead of the caller up to `until_step`; the present one is dropped.

        Args:
            until_step: where it is going to be paused; its checkpoint of that step is on disk when it is measured.
            begins_at_step: of a fork, the step of the checkpoint of another trial that the directory must hold.
        """
        self.drop()
        self.num_trials += 1
        self._num_taken = 0
        self._pending += [
            rank.start.remote(
                self.num_trials,
                config,
                checkpoint_directory,
                until_step=until_step,
                begins_at_step=begins_at_step,
            )
            for rank in self._ranks
        ]

    def advance(self, *, timeout_seconds: float | None = None) -> Outcome:
        """Trains up to the next measurement on all ranks; the measurement of rank 0, or the failure of the guilty.

        They go on at once with the interval after it. What they train there comes with the next call; until then no
        checkpoint is taken of it. If `timeout_seconds` pass without measurement or failure, the trial has failed and
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
        outcome: Outcome = ray.get(steps[0])
        return outcome

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

    def process_ids(self) -> list[int]:
        """The process id of each rank, by rank, on its own machine."""
        ids: list[int] = ray.get(self._joined)
        return ids

    def close(self) -> None:
        """Ends the ranks at once, whatever they do. Leaving the process group would need all of them to be well."""
        for rank in self._ranks:
            ray.kill(rank)

    def _wait(self, calls: Sequence[Any], deadline: float) -> Failure | None:
        """Waits for a call on each rank until the monotonic clock says `deadline`; None if all went well."""
        failures: list[Failure] = []
        remaining = list(calls)
        while remaining:
            left = max(deadline - time.monotonic(), 0.0)
            timeout = BLAME_SECONDS if failures else left if math.isfinite(left) else None
            done, remaining = ray.wait(remaining, timeout=timeout)
            failures += [failure for call in done if (failure := _failure_of(call)) is not None]
            if failures and not done:
                break
            if not done:
                silent = [rank for rank, call in enumerate(calls) if call in remaining]
                return Failure(FailureReason.ERROR, f"no measurement came in the time allowed; ranks {silent} hang")
        if not failures:
            return None
        together = len(failures) == len(calls)
        guilty = min(failures, key=_blame)
        if guilty.group_is_usable and not together:
            return Failure(guilty.reason, guilty.detail, guilty.trace, group_is_usable=False)
        return guilty


def _failure_of(call: Any) -> Failure | None:
    """The failure that a finished call on a rank ended with."""
    try:
        outcome = ray.get(call, timeout=BLAME_SECONDS)
    except OutOfMemoryError as error:
        return Failure(FailureReason.OUT_OF_MEMORY, f"a rank was ended because its machine ran out of memory: {error}")
    except RayActorError as error:
        return Failure(FailureReason.LOST, f"a rank died: {error}")
    except (RayError, GetTimeoutError) as error:
        return Failure(FailureReason.LOST, f"a rank could not be set up: {error}")
    return outcome if isinstance(outcome, Failure) else None


def _blame(failure: Failure) -> tuple[bool, int]:
    """Order of guilt: what another rank's failure cannot have caused comes first."""
    order = (
        FailureReason.OUT_OF_MEMORY,
        FailureReason.LOST,
        FailureReason.DIVERGED,
        FailureReason.ERROR,
        FailureReason.INFEASIBLE,
    )
    return failure.is_of_survivor, order.index(failure.reason)
