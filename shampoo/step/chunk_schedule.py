"""The chunks of a step, and the order and the threads in which they are worked on.

On the CPU chunks are distributed over threads, each of which computes single-threaded, if that keeps all of them busy.
Then no thread waits for the others after each operation, and while a refresh uses one thread for a matrix, the other
threads work on other chunks.

The refreshes of a step are solved before its chunks are stepped. A staggered refresh takes a few factors from each of
several chunks. Chunk by chunk, the threads would wait for the last factor of each chunk, and with few factors that
would be most of the time.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from shampoo.hyperparameters import Hyperparameters
from shampoo.linalg.per_matrix import Call, Parts, per_matrix_together, shares
from shampoo.linalg.single_threads import Jobs
from shampoo.state.block_state import Due
from shampoo.state.buckets import Bucket, Chunk, block_operations
from shampoo.state.timing import StepScalars, step_scalars
from shampoo.step.block_step import Solved
from shampoo.step.refresh import solver_call

MAX_BYTES = 32 << 20
"""Size of the factors that are solved ahead, by judgement: a step that refreshes more has enough factors in every
chunk."""
MAX_THREADS = 8
"""Limit by judgement: each thread has scratch memory of its own, and more threads would need more and smaller chunks
than there are."""
MIN_OPERATIONS = 1_200_000_000
"""The fewest operations, refreshes included, for which a step is distributed over threads. Below it, a step is faster
if each operation uses all threads: our threads wait for the interpreter between operations of less than about 1 ms, and
begin and end at different times. (Measured with two threads on two cores of 105 gigaflops, for an MLP of 669,706
parameters, whose ordinary step has 640 million operations. With operations that use all threads, the ordinary step took
0.85 of the time; the mean step 0.94 over a period of 50, in which every second step refreshed a factor, and 1.06 over
one of 10, in which each refreshed three. That was before factors were refreshed in even numbers.)"""
REFRESH_CUBES = 20
"""Operations of products that take as long as the refresh of a d×d factor, in d³: `eigh` took 18 of them with d = 256
and 11 with d = 1024, and the root is a product."""
MAX_IMBALANCE = 1.2
"""The largest ratio of the busiest thread's work to the mean. Above it, a step is faster if each operation uses all
threads. (With two threads such a step took 0.7 of a single thread's time on an MLP, while a thread with chunks of its
own takes half of that time, times the imbalance.)"""

Update = Callable[["ChunkStep"], None]
"""Brings the statistics of a chunk up to date."""
Step = Callable[["ChunkStep", Solved | None], None]
"""Steps a chunk. If the solution of its refresh is given, its statistics are already up to date."""


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

    @property
    def refresh_operations(self) -> list[int]:
        """For each matrix that is due, the number of operations of products that take as long as its refresh."""
        sides = ((self.chunk.state.sides[mode], stop - start) for mode, start, stop in self.due)
        return [REFRESH_CUBES * side.size**3 for side, num in sides if side.kind == "full" for _ in range(num)]


def chunk_steps(buckets: Iterable[Bucket], steps: Mapping[Tensor, int], h: Hyperparameters) -> list[ChunkStep]:
    """All chunks of a group, given the step count of each parameter that takes part."""
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
    """Solutions of refreshes by the `id` of the chunk's work; empty, with nothing done, if it would gain nothing."""
    ahead = _solved_ahead(work, h)
    if sum(len(item.due) for item in ahead) < 2:
        return {}
    for item in ahead:
        update(item)
    calls = [(item, _calls(item, h)) for item in ahead]
    results = iter(per_matrix_together([call for _, of_item in calls for call in of_item.values()]))
    return {id(item): {mode: next(results) for mode in of_item} for item, of_item in calls}


def _keeps_busy(work: Sequence[ChunkStep], num_threads: int) -> bool:
    """True if there is enough work for this number of threads, in chunks that can be divided evenly among them."""
    if not 1 < num_threads <= MAX_THREADS or any(item.bucket.like.device.type != "cpu" for item in work):
        return False
    operations = sorted((job for item in work for job in (item.operations, *item.refresh_operations)), reverse=True)
    total = sum(operations)
    if total < MIN_OPERATIONS:
        return False
    loads = [0] * num_threads
    for job in operations:  # in the order in which they begin, each on the first free thread
        heapq.heapreplace(loads, loads[0] + job)
    return max(loads) <= MAX_IMBALANCE * total / num_threads


_SOLVE, _UPDATE, _STEP, _STEP_SOLVED, _LAST = range(5)
"""The order in which jobs begin: first those that others wait for."""


def _step_in_threads(
    work: Sequence[ChunkStep], h: Hyperparameters, update: Update, step: Step, num_threads: int
) -> None:
    jobs = Jobs()
    ahead = _solved_ahead(work, h)

    def update_and_solve(item: ChunkStep) -> None:
        update(item)
        calls = {mode: shares(call, num_threads) for mode, call in _calls(item, h).items()}
        results = {mode: Parts(len(of_side)) for mode, of_side in calls.items()}
        solving = [
            partial(results[mode].solve, index, share)
            for mode, of_side in calls.items()
            for index, share in enumerate(of_side)
        ]

        def step_solved() -> None:
            step(item, {mode: result.joined() for mode, result in results.items()})

        jobs.add_in_turn(solving, step_solved, ranks=(_SOLVE, _STEP_SOLVED))

    # The longest jobs first, so that the threads end together.
    for item in sorted(ahead, key=lambda item: -item.operations):
        jobs.add(partial(update_and_solve, item), rank=_UPDATE)
    is_ahead = {id(item) for item in ahead}
    others = sorted(
        (item for item in work if id(item) not in is_ahead), key=lambda item: (not item.due, -item.operations)
    )
    # The smallest chunks come last, after those that wait for their refresh.
    middle = len(others) - num_threads if ahead else len(others)
    for index, item in enumerate(others):
        jobs.add(partial(step, item, None), rank=_STEP if index < middle else _LAST)
    jobs.run(num_threads)


def _solved_ahead(work: Sequence[ChunkStep], h: Hyperparameters) -> list[ChunkStep]:
    """The chunks whose refresh is solved before they are stepped; none if a refresh needs more than a solution."""
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
