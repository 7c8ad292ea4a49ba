"""The chunks of a step, and the order and the threads in which they are worked on.

On the CPU they are shared out over threads that compute with one thread each, where that keeps all of them busy: no
thread then waits for the others after each operation, and a refresh, which has one thread to a matrix, leaves the rest
to other chunks.

What a step refreshes is solved before its chunks are stepped. A staggered refresh is a few factors of each of some
chunks, and chunk by chunk the threads would wait for the last factor of each, which with few of them is most of the
time.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from shampoo.hyperparameters import Hyperparameters
from shampoo.linalg.per_matrix import Call, joined, per_matrix_together, shares, single_threads, solve
from shampoo.state.block_state import Due
from shampoo.state.buckets import Bucket, Chunk, block_operations
from shampoo.state.timing import StepScalars, step_scalars
from shampoo.step.block_step import Solved
from shampoo.step.refresh import solver_call

MAX_BYTES = 32 << 20
"""Size of the factors that are solved ahead, by judgement: a step that refreshes more has enough of them in every
chunk."""
MAX_THREADS = 8
"""Each thread has scratch memory of its own, and more threads need more and smaller chunks than there are; by
judgement."""
MIN_OPERATIONS = 500_000_000
"""Of a step that is shared out, some 10 ms: with chunks of which an operation takes less than about 1 ms, threads wait
for the interpreter."""
MAX_IMBALANCE = 1.2
"""The work of the busiest thread over the mean: above it, operations that have all threads are done earlier. (With two
threads a step of them took 0.7 of a single thread's time on an MLP, and chunks of its own take a thread a half of it,
times the imbalance.)"""

T = TypeVar("T")
Update = Callable[["ChunkStep"], None]
"""Brings the statistics of a chunk up to date."""
Step = Callable[["ChunkStep", Solved | None], None]
"""Steps a chunk: with what its refresh solves if that has been done, and then its statistics are up to date."""


@dataclass(frozen=True, slots=True)
class ChunkStep:
    """The work of a step on one chunk."""

    bucket: Bucket
    chunk: Chunk
    step: int
    """t of its parameters."""
    at: StepScalars
    due: Due

    @property
    def operations(self) -> int:
        """See `block_operations`."""
        sizes = (side.size for side in self.chunk.state.sides if side.kind == "full")
        return (self.chunk.stop - self.chunk.start) * block_operations(self.bucket.block, sizes)


def chunk_steps(buckets: Iterable[Bucket], steps: Mapping[Tensor, int], h: Hyperparameters) -> list[ChunkStep]:
    """All of a group, given the step count of each parameter that takes part."""
    scalars: dict[tuple[int, bool], StepScalars] = {}
    found: list[ChunkStep] = []
    for bucket in buckets:
        has_factors = bool(bucket.state.sides)
        for step, chunk in bucket.chunks(steps):
            key = (step, has_factors)
            if key not in scalars:
                scalars[key] = step_scalars(h, step, has_factors=has_factors)
            found.append(ChunkStep(bucket, chunk, step, scalars[key], bucket.due(chunk, h, scalars[key])))
    return found


def step_chunks(work: Sequence[ChunkStep], h: Hyperparameters, update: Update, step: Step) -> None:
    """Steps all chunks of a group, which have no memory in common, each once."""
    num_threads = torch.get_num_threads()
    if _keeps_busy(work, num_threads):
        _step_in_threads(work, h, update, step, num_threads)
        return
    solved = _solve_together(work, h, update)
    for item in work:
        step(item, solved.get(id(item)))


def _solve_together(work: Sequence[ChunkStep], h: Hyperparameters, update: Update) -> dict[int, Solved]:
    """Solutions of refreshes by the identity of the chunk's work; empty, and nothing done, where it gains nothing."""
    ahead = _solved_ahead(work, h)
    if sum(len(item.due) for item in ahead) < 2:
        return {}
    for item in ahead:
        update(item)
    calls = [(item, _calls(item, h)) for item in ahead]
    results = iter(per_matrix_together([call for _, of_item in calls for call in of_item.values()]))
    return {id(item): {mode: next(results) for mode in of_item} for item, of_item in calls}


def _keeps_busy(work: Sequence[ChunkStep], num_threads: int) -> bool:
    """True if there is enough to do for so many threads, in chunks that they can share out evenly."""
    if not 1 < num_threads <= MAX_THREADS or any(item.bucket.like.device.type != "cpu" for item in work):
        return False
    operations = sorted((item.operations for item in work), reverse=True)
    total = sum(operations)
    if total < MIN_OPERATIONS:
        return False
    loads = [0] * num_threads
    for chunk in operations:  # the order in which they are begun, each by the first thread that is free
        heapq.heapreplace(loads, loads[0] + chunk)
    return max(loads) <= MAX_IMBALANCE * total / num_threads


def _step_in_threads(
    work: Sequence[ChunkStep], h: Hyperparameters, update: Update, step: Step, num_threads: int
) -> None:
    threads = single_threads(num_threads)
    started: list[Future[Any]] = []

    def start(function: Callable[..., T], *arguments: object) -> Future[T]:
        future = threads.submit(function, *arguments)
        started.append(future)
        return future

    ahead = _solved_ahead(work, h)
    is_ahead = {id(item) for item in ahead}
    # What takes longest first, so that the threads end together.
    others = sorted(
        (item for item in work if id(item) not in is_ahead), key=lambda item: (not item.due, -item.operations)
    )
    try:
        updates = [start(update, item) for item in ahead]
        num_meanwhile = max(0, num_threads - len(updates)) if updates else 0
        # The smallest are left to the end, after the chunks that wait for their refresh.
        num_left = min(num_threads, len(others) - num_meanwhile) if updates else 0
        middle = len(others) - num_left
        for item in others[:num_meanwhile]:
            start(step, item, None)
        for updated in updates:
            updated.result()
        solving = [
            (item, {mode: [start(solve, part) for part in shares(call, num_threads)] for mode, call in calls.items()})
            for item, calls in ((item, _calls(item, h)) for item in ahead)
        ]
        for item in others[num_meanwhile:middle]:
            start(step, item, None)
        for item, results in solving:
            start(_step_solved, step, item, {mode: [part.result() for part in results[mode]] for mode in results})
        for item in others[middle:]:
            start(step, item, None)
    finally:
        wait(started)
    for future in started:
        future.result()


def _step_solved(step: Step, item: ChunkStep, parts: Mapping[int, Sequence[tuple[Tensor, ...]]]) -> None:
    step(item, {mode: joined(of_side) for mode, of_side in parts.items()})


def _solved_ahead(work: Sequence[ChunkStep], h: Hyperparameters) -> list[ChunkStep]:
    """Those whose refresh is solved before they are stepped; none where a refresh is more than a solution."""
    if h.preconditioner not in ("shampoo", "soap") or h.low_precision_state or h.refresh_tolerance > 0:
        return []
    due = [item for item in work if item.due and item.bucket.like.device.type == "cpu"]
    sizes = [
        (stop - start) * item.chunk.state.sides[mode].size ** 2 * item.bucket.like.element_size()
        for item in due
        for mode, start, stop in item.due
    ]
    return due if sum(sizes) <= MAX_BYTES else []


def _calls(item: ChunkStep, h: Hyperparameters) -> dict[int, Call]:
    """The problems that the refreshes of a chunk solve, by side."""
    calls = {mode: solver_call(item.chunk.state.rows(start, stop), mode, h, item.at) for mode, start, stop in item.due}
    return {mode: call for mode, call in calls.items() if call is not None}
