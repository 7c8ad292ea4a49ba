"""Jobs distributed over threads on the CPU, each of which computes single-threaded; the calling thread is one of them.

The caller takes part because it already has a core: if it wakes other threads and waits for them, they sometimes share
one core for milliseconds while the caller's core is idle.
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
        """Adds a job: jobs of the lowest rank begin first, and jobs of equal rank in the order in which they were
        added."""
        with self._changed:
            heapq.heappush(self._waiting, (rank, next(self._numbers), job))
            self._changed.notify()

    def add_in_turn(self, first: Sequence[Job], then: Job, *, ranks: tuple[int, int]) -> None:
        """Adds jobs, and another one that is added when all of them are done; `ranks` are those of the former and the
        latter."""
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
        """Runs all jobs, without gradients, in this many threads, and returns when none is left.

        If the number of threads of a single thread cannot be set, only the calling thread runs them, and its operations
        use as many threads as before. After a failure no further job begins; the failure is raised when no job runs any
        more.
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
        # Threads that are still busy with other callers' jobs are not waited for.
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
        """The next job. Waits while running jobs may still add one; None when none will come."""
        with self._changed:
            self._changed.wait_for(lambda: self._failure or self._waiting or self._num_running == 0)
            if self._failure or not self._waiting:
                return None
            self._num_running += 1
            return heapq.heappop(self._waiting)[2]


@cache
def _threads(process_id: int, num_threads: int) -> ThreadPoolExecutor:  # noqa: ARG001
    """Threads that compute single-threaded; they are kept. The process is part of the key, because a forked child
    inherits the pool, but none of its threads."""
    return ThreadPoolExecutor(num_threads, "shampoo-jobs", initializer=compute_with_one_thread)
