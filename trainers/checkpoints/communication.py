"""The ranks' channel for checkpoints, apart from the one that training uses.

A checkpoint is written in the background while training goes on. Its collectives must not come between those of
training, so they have a process group of their own, and a thread of their own that runs all of them one after the
other: trials that share the process (one paused, one running) queue in it, in the same order on every rank.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar, cast

import torch
import torch.distributed as dist

from trainers.ranks.context import RankContext
from trainers.torch_internals import group_timeout

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Channel:
    """Collectives of the ranks of a trial; to be called within `submit` alone."""

    rank: int
    world_size: int
    group: dist.ProcessGroup | None
    """None with one rank."""
    thread: ThreadPoolExecutor

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Runs a function after those submitted before it; all ranks submit in the same order."""
        return self.thread.submit(function)

    def run(self, function: Callable[[], T]) -> T:
        """The function's value; it runs after those submitted before it."""
        return function() if self.group is None else self.thread.submit(function).result()

    def finish_submitted(self) -> None:
        """Returns when everything that this process submitted has run, whatever came of it."""
        self.thread.submit(lambda: None).result()

    def gather(self, value: T) -> list[T]:
        """Every rank's value, by rank."""
        if self.group is None:
            return [value]
        gathered: list[T | None] = [None] * self.world_size
        dist.all_gather_object(gathered, value, group=self.group)
        return cast("list[T]", gathered)

    def from_rank_0(self, value: T) -> T:
        """Rank 0's value."""
        if self.group is None:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0, group=self.group)
        return values[0]

    def sums(self, values: list[int]) -> list[int]:
        """Each value summed over ranks."""
        if self.group is None:
            return values
        tensor = torch.tensor(values, dtype=torch.int64)
        dist.all_reduce(tensor, group=self.group)
        return cast("list[int]", tensor.tolist())


_channels: dict[dist.ProcessGroup | None, Channel] = {}
"""The channel of each process group that this process is in, None for trials of one rank; making a group costs
milliseconds."""


def open_channel(context: RankContext) -> Channel:
    """The channel of this process; all ranks call it together.

    Its collectives wait for the other ranks as long as those of training do.
    """
    world = dist.group.WORLD if context.world_size > 1 else None
    if world not in _channels:
        group = None
        if world is not None:
            for left in [other for other in _channels if other is not None]:
                del _channels[left]
            group = dist.new_group(
                backend="gloo", timeout=group_timeout(world, context.device), group_desc="checkpoints"
            )
        thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoints")
        _channels[world] = Channel(context.rank, context.world_size, group, thread)
    return _channels[world]
