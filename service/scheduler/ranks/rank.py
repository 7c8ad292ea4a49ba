"""A rank of a group: a Ray actor that trains one trial after another, and returns their measurements and failures."""

from __future__ import annotations

import ctypes
import gc
import math
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import ray

from service.domain import FailureReason
from service.places import NodePlace
from service.scheduler.output.files import OutputPlace, send_output_to
from service.scheduler.ranks.rank_consumer import GroupConsumer
from trainers.config import Diverged, InvalidConfig, Measurement, TrialConfig
from trainers.config_part import Refusal
from trainers.data.roots import DataRoots
from trainers.identity.values import TrialIdentity
from trainers.ranks.consumer import GivenUp
from trainers.storage import Place
from trainers.workload.user_workload import place_of, text_of

if TYPE_CHECKING:
    from torch import nn

COLLECTIVE_TIMEOUT_SECONDS = 300.0
"""Seconds that a rank waits for the others in a collective before it fails."""


@dataclass(frozen=True, slots=True)
class RankFailure:
    """The failure of a rank, after which its trial cannot continue."""

    reason: FailureReason
    detail: str
    """The explanation for a person."""
    trace: str = ""
    group_is_usable: bool = False
    """True if all ranks stopped at the same place, so that the group can train the next trial."""
    is_of_survivor: bool = False
    """True if a rank only noticed that another one was gone, and knows no cause."""
    refusal: Refusal | None = None
    """The refusal of the trial's config; None: it was not refused."""
    exit_status: int | None = None
    """The exit status of the rank's process, if it died and that is known; negative: the signal that killed it."""
    is_mismatch: bool = False
    """True if the trial's own checkpoint does not fit it, for instance because it is of another version."""


@dataclass(frozen=True, slots=True)
class JoinedRank:
    """A rank that has joined its group."""

    process_id: int
    """The process on the rank's own machine."""
    address: str
    """The machine's IP address."""
    place: NodePlace


RankOutcome: TypeAlias = Measurement | RankFailure | None
"""The next outcome of a trial; None: its ranks have nothing more to give."""

MESSAGES = "messages"
"""The group of calls that a rank receives while it trains. With such a group, Ray runs no call in a rank's main
thread."""


class Rank:
    """One rank, in a process of its own. The first call must be `join`."""

    def __init__(self, *, num_threads: int) -> None:
        _end_of_sigterm()
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
        self._step_of_weights: int | None = None
        self._identity: TrialIdentity | None = None

    def meeting_point(self) -> str:
        """An address on this rank's machine at which the ranks can meet."""
        with socket.socket() as probe:
            probe.bind(("", 0))
            port = probe.getsockname()[1]
        address = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        return f"tcp://{address}:{port}"

    def join(self, *, rank: int, world_size: int, meeting_point: str) -> JoinedRank:
        """Joins the process group, if there is more than one rank; what this rank is."""
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
        gpus = tuple(str(gpu) for gpu in ray.get_gpu_ids())
        address: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        return JoinedRank(os.getpid(), address, NodePlace(socket.gethostname(), gpus))

    def start(
        self,
        trial: int,
        config: TrialConfig,
        checkpoint_directory: str | None,
        *,
        data_roots: DataRoots | None = None,
        until_step: int | None,
        begins_at_step: int = 0,
        output: OutputPlace | None = None,
        weights_directory: str | None = None,
    ) -> None:
        """Drops the current trial, if any, and prepares the next; it begins to train with `advance`.

        `checkpoint_directory` is a path or a URI, as `trainers.storage.text_of` gives it, or None for a trial that
        takes no checkpoints; so is `weights_directory`.
        """
        from trainers.loop import train  # imports torch
        from trainers.ranks.context import RankContext  # imports torch
        from trainers.storage import place_of

        self.stop()
        if output is not None:
            send_output_to(output, self._rank)
        self._consumer.begin(trial)
        self._step, self._until_step = 0, math.inf if until_step is None else until_step
        self._step_of_weights = None if weights_directory is None else config.num_steps
        self._identity = None
        context = RankContext(
            self._rank,
            self._world_size,
            self._device,
            None if checkpoint_directory is None else place_of(checkpoint_directory),
            consumer=self._consumer,
            begins_at_step=begins_at_step,
            pause_step=until_step,
            data_roots=data_roots,
            on_built=self._note_identity if self._rank == 0 else None,
            on_trained=None if weights_directory is None else _keeping(place_of(weights_directory), config, self._rank),
        )
        self._measurements = train(config, context)

    def advance(self) -> RankOutcome:
        """Trains up to the next measurement."""
        if self._step >= self._until_step and not self._consumer.wait():
            return None
        try:
            measurement = next(self._measurements, None)
            if measurement is not None and measurement.step == self._step_of_weights:
                next(self._measurements, None)  # so that the weights are written before the end is reported
        except GivenUp:
            return None
        except BaseException as error:  # noqa: BLE001 - the boundary to a user's own code
            failure = describe_failure(error)
        else:
            if measurement is not None:
                self._step = measurement.step
                self._consumer.give()
            return measurement
        if failure.trace:
            with suppress(OSError):  # its disk may be full
                sys.stderr.write(failure.trace)  # where a reader of the rank's output looks for it
        # Not sooner: until here the error holds its stack frames, and with them the trial's model.
        self.stop()
        return failure

    @ray.method(concurrency_group=MESSAGES)
    def identity(self) -> TrialIdentity | None:
        """The identity of the present trial, on rank 0 once it has been measured; None elsewhere, and before."""
        return self._identity

    @ray.method(concurrency_group=MESSAGES)
    def take(self, trial: int, num_taken: int) -> None:
        """Receives the number of a trial's measurements that have been processed; the next one is wanted."""
        self._consumer.take(trial, num_taken)

    @ray.method(concurrency_group=MESSAGES)
    def give_up(self, trial: int) -> None:
        """Receives the message that a trial is given up."""
        self._consumer.give_up(trial)

    def stop(self) -> None:
        """Drops the present trial with its model, optimizer and data."""
        self._measurements = iter(())
        gc.collect()  # a model in a cycle would keep its memory while the next one is built
        # The rest are imported libraries, which take 0.2 s to go through; the next collection skips them.
        gc.freeze()

    def _note_identity(self, identity: TrialIdentity) -> None:
        self._identity = identity


def _end_of_sigterm() -> None:
    """Makes SIGTERM end this process at once, as it does any that has no handler.

    Ray's handler accepts no more calls and waits for running ones, while a rank that waits for `take` waits for such a
    call: neither would ever end. Python sets handlers only in its main thread, where no constructor of a rank runs.
    """
    set_handler = ctypes.CDLL(None).signal
    set_handler.argtypes, set_handler.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
    set_handler(signal.SIGTERM, None)  # SIG_DFL


def _keeping(directory: Place, config: TrialConfig, rank: int) -> Callable[[nn.Module], None]:
    """Writes the weights of the model that it is given, on rank 0; a trial does not fail because that did."""
    from trainers.storage import StoreFailed
    from trainers.weights import put_weights, whole_weights  # imports torch

    def keep(model: nn.Module) -> None:
        weights = whole_weights(model, keeps=rank == 0)
        if rank != 0:
            return
        metadata = {
            "format": "pt",
            "workload": config.workload,
            "seed": str(config.seed),
            "num_steps": str(config.num_steps),
        }
        try:
            put_weights(directory, weights, metadata=metadata)
        except (ValueError, OSError, StoreFailed) as error:
            with suppress(OSError):  # the disk that has no room for them can be that of the output, too
                sys.stderr.write(f"the trained weights could not be kept: {error}\n")

    return keep


def describe_failure(error: BaseException) -> RankFailure:
    """The failure of the trial in which the training loop raised an exception."""
    import torch  # called in the ranks only

    from trainers.checkpoints import CheckpointMismatch
    from trainers.memory.peak import peak_bytes
    from trainers.ranks.lost_ranks import is_of_a_lost_rank
    from trainers.storage import StoreFailed
    from trainers.storage.full_disks import lacks_room

    trace = "".join(traceback.format_exception(error)).encode(errors="backslashreplace").decode()
    text = text_of(error)
    what = f"{type(error).__name__}: {text}" if text else type(error).__name__
    detail = f"{what}{place_of(error)}"
    if isinstance(error, Diverged):
        return RankFailure(FailureReason.DIVERGED, text, group_is_usable=True)
    if isinstance(error, InvalidConfig):
        return RankFailure(FailureReason.ERROR, text, trace, group_is_usable=True, refusal=Refusal.of(error))
    if isinstance(error, CheckpointMismatch):
        return RankFailure(FailureReason.ERROR, detail, trace, is_mismatch=True)
    # The CPU allocator reports exhaustion as a plain RuntimeError.
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in text:
        peak = peak_bytes("cuda" if isinstance(error, torch.OutOfMemoryError) else "cpu") / 2**30
        return RankFailure(FailureReason.OUT_OF_MEMORY, f"{what} (this rank's peak: {peak:.2f} GiB)", trace)
    if is_of_a_lost_rank(error):
        return RankFailure(FailureReason.LOST, f"another rank was lost: {detail}", trace, is_of_survivor=True)
    if isinstance(error, StoreFailed):
        return RankFailure(FailureReason.STORE_FAILED, f"the store of checkpoints failed: {text}", trace)
    if lacks_room(error):
        return RankFailure(FailureReason.STORE_FAILED, f"a disk is full: {detail}", trace)
    return RankFailure(FailureReason.ERROR, detail, trace)
