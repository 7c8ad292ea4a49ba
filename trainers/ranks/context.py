"""Ranks: who this process is, its process group, and the few collectives that training needs.

The group is joined once per process and any number of trials run in it one after the other; `trainers.loop.train`
neither joins nor leaves it. Every function that takes a `RankContext` is called by all ranks, in the same order.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainers.data.roots import DataRoots
from trainers.identity.values import TrialIdentity
from trainers.ranks.consumer import Consumer
from trainers.storage import Place

T = TypeVar("T")

DEFAULT_TIMEOUT_SECONDS = 300.0
"""Time that a collective waits for the other ranks before it fails."""


@dataclass(frozen=True, slots=True)
class RankContext:
    """The place of one rank of a trial: its number, device and checkpoints, and who hears of it."""

    rank: int
    world_size: int
    device: str
    """`cpu`, or `cuda:N` as this process numbers its devices."""
    checkpoint_directory: Place | None = None
    """Place of this trial's checkpoints, the same (shared) one for every rank; None: no checkpoints, no resume."""
    consumer: Consumer | None = None
    """The consumer of the measurements; None: one that asks for the next only when it has dealt with the last. Given on
    all ranks or on none."""
    begins_at_step: int = 0
    """The step of another trial's checkpoint from which this one begins, and without which it does not begin; 0: it
    needs none."""
    pause_step: int | None = None
    """The step at which the consumer is going to leave the trial: it is measured there and perhaps before, whatever the
    config says of measurements, and that is given once its checkpoint is on disk. None: it stays."""
    data_roots: DataRoots | None = None
    """The directories that the workload may be told to read; None: all that this process may."""
    on_built: Callable[[TrialIdentity], None] | None = None
    """Hears, before the first step, which model is trained on which data; for that, a rank reads some of them. None:
    nobody asks."""
    on_trained: Callable[[nn.Module], None] | None = None
    """Is given, on every rank and after the last measurement, the model with the weights that were evaluated; for that,
    the generator of measurements is exhausted. None: nobody asks."""

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world_size:
            raise ValueError(f"rank must be in [0, world_size), got rank {self.rank}, world_size {self.world_size}")


def single_process_context(*, device: str = "cpu", checkpoint_directory: Place | None = None) -> RankContext:
    """The context of a trial on one rank, which needs no process group."""
    return RankContext(rank=0, world_size=1, device=device, checkpoint_directory=checkpoint_directory)


def process_group_context(*, device: str = "cpu", checkpoint_directory: Place | None = None) -> RankContext:
    """The context of this rank in the process group it has joined.

    Raises:
        ValueError: this process has joined no group.
    """
    return RankContext(
        rank=dist.get_rank(),
        world_size=dist.get_world_size(),
        device=device,
        checkpoint_directory=checkpoint_directory,
    )


def is_torchrun() -> bool:
    """True if `torchrun` (or another launcher with its environment variables) started this process."""
    return {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys()


def join_torchrun_group(*, device_type: str = "cpu", timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS) -> str:
    """Joins the process group that torchrun's environment describes; gives this rank's device.

    `device_type` is `cpu` or `cuda`; with `cuda`, each rank takes the device of its local rank.
    """
    device = f"cuda:{os.environ['LOCAL_RANK']}" if device_type == "cuda" else device_type
    join_process_group(
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
        init_method="env://",
        device=device,
        timeout_seconds=timeout_seconds,
    )
    return device


def join_process_group(
    *,
    rank: int,
    world_size: int,
    init_method: str,
    device: str = "cpu",
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
) -> None:
    """Joins the process group of this process: gloo on the CPU, NCCL on CUDA devices.

    Returns when all ranks have joined. `init_method` is where they meet, e.g. `tcp://10.0.0.1:29500` or
    `file:///shared/unique-name`.

    Raises:
        ValueError: this process is already in a group.
    """
    on_cuda = device.startswith("cuda")
    if on_cuda:
        torch.cuda.set_device(device)
    dist.init_process_group(
        backend="nccl" if on_cuda else "gloo",
        device_id=torch.device(device) if on_cuda else None,  # else a barrier has to guess it, and warns
        init_method=init_method,
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=timeout_seconds),
    )


def synchronise_buffers(model: nn.Module, context: RankContext) -> None:
    """Gives every rank rank 0's buffers (running statistics), so that all ranks evaluate one and the same model."""
    if context.world_size > 1:
        for buffer in model.buffers():
            dist.broadcast(buffer, src=0)


class PendingSums:
    """Sums over ranks that are still on their way."""

    def __init__(self, values: Tensor | list[float], work: dist.Work | None, copied: torch.cuda.Event | None) -> None:
        self._values = values
        self._work = work
        self._copied = copied

    def wait(self) -> list[float]:
        """The sums, once they are there; later work on the device is not waited for."""
        if self._work is not None:
            self._work.wait()
        if self._copied is not None:
            self._copied.synchronize()
        return self._values if isinstance(self._values, list) else [float(value) for value in self._values.tolist()]


def start_sum_over_ranks(values: Tensor | list[float], context: RankContext) -> PendingSums:
    """Starts to sum `values`, numbers or (n,) on the context's device, overwritten, over ranks, without waiting."""
    if isinstance(values, list):
        if context.world_size == 1:
            return PendingSums(values, None, None)
        values = torch.tensor(values, dtype=torch.float64, device=context.device)
    if values.is_cuda:
        if context.world_size > 1:
            dist.all_reduce(values)
        # `tolist()` on the device tensor would wait for everything launched since; the event waits for the copy alone.
        on_host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
        on_host.copy_(values, non_blocking=True)
        copied = torch.cuda.Event()
        copied.record()
        return PendingSums(on_host, None, copied)
    work = dist.all_reduce(values, async_op=True) if context.world_size > 1 else None
    return PendingSums(values, work, None)


def sum_over_ranks(values: Sequence[float], context: RankContext) -> list[float]:
    """Each value summed over ranks, in float64; the same list on every rank."""
    return start_sum_over_ranks([float(value) for value in values], context).wait()


def max_over_ranks(values: Sequence[float], context: RankContext) -> list[float]:
    """The largest of each value over ranks, in float64; the same list on every rank."""
    if context.world_size == 1:
        return list(values)
    largest = torch.tensor(values, dtype=torch.float64, device=context.device)
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    return [float(value) for value in largest.tolist()]


def gather_over_ranks(value: T, context: RankContext) -> list[T]:
    """Every rank's value, by rank. For small plain values."""
    if context.world_size == 1:
        return [value]
    gathered: list[T | None] = [None] * context.world_size
    dist.all_gather_object(gathered, value)
    return cast("list[T]", gathered)
