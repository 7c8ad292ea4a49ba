"""Real gloo ranks for tests: processes that join a group once and then run one function after the other."""

from __future__ import annotations

import multiprocessing
import traceback
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import torch

from tests.support.waiting import PATIENCE_SECONDS
from trainers.parallel.teardown import leave_process_group
from trainers.ranks.context import join_process_group


def rank_context() -> ForkServerContext:
    """Starts processes that are forks of one which has imported what every rank imports, and has done nothing else.

    The imports would take a rank longer than most tests. The processes have the environment at the start of the first
    one.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.support.trainers.rank_imports", __name__])
    return context


class WarmRanks:
    """A group of rank processes; each call runs one function on all of them, inside their process group."""

    def __init__(
        self,
        world_size: int,
        meeting_point: Path,
        *,
        timeout_seconds: float = PATIENCE_SECONDS,
        device: str = "cpu",
    ) -> None:
        """Starts the ranks; with a CUDA `device` they join over NCCL, which needs one for each rank."""
        self._timeout_seconds = timeout_seconds
        context = rank_context()
        self._connections: list[Connection] = []
        self._processes = []
        for rank in range(world_size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, rank, world_size, meeting_point, device))
            process.start()
            theirs.close()
            self._connections.append(ours)
            self._processes.append(process)

    def run(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """The values of `function(*arguments)` by rank; the function must be importable."""
        for connection in self._connections:
            connection.send((function, arguments))
        answers = []
        for rank, connection in enumerate(self._connections):
            assert connection.poll(self._timeout_seconds), f"rank {rank} does not answer"
            answers.append(connection.recv())
        # Only now: an unread answer would be taken for that of the next call.
        for rank, (succeeded, result) in enumerate(answers):
            assert succeeded, f"rank {rank}: {result}"
        return [result for _, result in answers]

    def stop(self) -> list[int | None]:
        """Ends the ranks normally; returns their exit codes."""
        for connection in self._connections:
            connection.send(None)
        for process in self._processes:
            process.join(PATIENCE_SECONDS)
        return [process.exitcode for process in self._processes]


def _serve(connection: Connection, rank: int, world_size: int, meeting_point: Path, device: str) -> None:
    warnings.simplefilter("error")
    torch.set_num_threads(1)
    join_process_group(
        rank=rank,
        world_size=world_size,
        init_method=f"file://{meeting_point}",
        device=device,
        timeout_seconds=PATIENCE_SECONDS,
    )
    while (call := connection.recv()) is not None:
        function, arguments = call
        try:
            connection.send((True, function(*arguments)))
        except Exception:  # noqa: BLE001  # a process boundary: the test process shows the traceback
            connection.send((False, traceback.format_exc()))
    leave_process_group()
