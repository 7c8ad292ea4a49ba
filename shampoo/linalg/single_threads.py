"""Jobs shared out over threads of which each computes with one thread on the CPU, the caller's own among them.

The caller takes part because it has a core already: threads that it woke and then waited for were seen to share one
core for milliseconds while the caller's was idle.
"""

from __future__ import annotations

import heapq
import itertools
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache, partial

import torch

from shampoo.linalg.native_threads import compute_with_one_thread, end_spinning, is_settable, one_thread

Job = Callable[[], object]


class Jobs:
    """Jobs and the order in which they begin; while they run they may add others."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, Job]] = []
        self._numbers = itertools.count()
        self._num_running = 0
        self._failure: BaseException | None = None
        self._changed = threading.Condition()

    def add(self, job: Job, *, rank: int = 0) -> None:
        """Adds a job: those of the least rank begin first, and of equal ones those that were added first."""
        with self._changed:
            heapq.heappush(self._waiting, (rank, next(self._numbers), job))
            self._changed.notify()

    def add_in_turn(self, first: Sequence[Job], then: Job, *, ranks: tuple[int, int]) -> None:
        """Adds jobs, and one that is added when all of them are done, with the rank of either."""
        left = set(range(len(first)))

        def do(index: int) -> None:
            first[index]()
            with self._changed:
                left.discard(index)
                if not left:
                    self.add(then, rank=ranks[1])

        for index in range(len(first)):
            self.add(partial(do, index), rank=ranks[0])
        if not first:
            self.add(then, rank=ranks[1])

    def run(self, num_threads: int) -> None:
        """Runs all jobs, without gradients, in so many threads, and returns when none is left.

        Where a thread's own number cannot be set it is the calling one alone, with as many as its operations have.
        After a failure no job begins any more; it is raised when none runs.
        """
        if is_settable():
            self._run(num_threads)
        else:
            self._work()
        if self._failure is not None:
            raise self._failure

    def _run(self, num_threads: int) -> None:
        helping: list[Future[None]] = []
        if num_threads > 1:
            end_spinning()
            others = _threads(os.getpid(), num_threads - 1)
            helping = [others.submit(self._work) for _ in range(num_threads - 1)]
        try:
            with one_thread():
                self._work()
        except BaseException as interruption:  # noqa: BLE001
            self._failure = interruption
        # Those that other callers' jobs have kept from beginning are not waited for.
        wait([future for future in helping if not future.cancel()])

    @torch.no_grad()
    def _work(self) -> None:
        while (job := self._next()) is not None:
            try:
                job()
            except BaseException as failure:  # noqa: BLE001
                self._failure = self._failure or failure
            finally:
                with self._changed:
                    self._num_running -= 1
                    self._changed.notify_all()

    def _next(self) -> Job | None:
        """The next job; waits for one while those that run may add it, and is None when none will come."""
        with self._changed:
            self._changed.wait_for(lambda: self._failure or self._waiting or self._num_running == 0)
            if self._failure or not self._waiting:
                return None
            self._num_running += 1
            return heapq.heappop(self._waiting)[2]


@cache
def _threads(process_id: int, num_threads: int) -> ThreadPoolExecutor:  # noqa: ARG001
    """Threads that compute with one thread each, kept. The process is part of the key: a forked child inherits the
    pool, but none of its threads."""
    return ThreadPoolExecutor(num_threads, "shampoo-jobs", initializer=compute_with_one_thread)
