"""All that a step refreshes on the CPU, solved in one parallel call before its chunks are stepped.

A staggered refresh is a few factors of each of some chunks. Chunk by chunk the threads would wait for the last factor
of each, which with few of them is most of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from shampoo.hyperparameters import Hyperparameters
from shampoo.linalg.per_matrix import per_matrix_together
from shampoo.state.block_state import Due
from shampoo.state.buckets import Bucket, Chunk
from shampoo.state.timing import StepScalars, step_scalars
from shampoo.step.block_step import Solved, update_gram_factors
from shampoo.step.refresh import solver_call

MAX_BYTES = 32 << 20
"""Size of the factors that are solved ahead, by judgement: a step that refreshes more has enough of them in every
chunk."""


@dataclass(frozen=True, slots=True)
class ChunkStep:
    """The work of a step on one chunk."""

    bucket: Bucket
    chunk: Chunk
    step: int
    """t of its parameters."""
    at: StepScalars
    due: Due


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


def solve_ahead(
    work: Sequence[ChunkStep], h: Hyperparameters, gradient: Callable[[ChunkStep], Tensor]
) -> dict[int, Solved]:
    """Brings the statistics of the chunks that are due up to date and solves for their refreshes.

    Args:
        gradient: that of a chunk, (K, d_1, ..., d_k), which may be overwritten by the next one's.

    Returns:
        By position in `work` what those chunks are to go on with; empty, and nothing done, where there is nothing to
        gain.
    """
    if h.preconditioner not in ("shampoo", "soap") or h.low_precision_state or h.refresh_tolerance > 0:
        return {}
    due = {index: item for index, item in enumerate(work) if item.due and item.bucket.like.device.type == "cpu"}
    sizes = [
        (stop - start) * item.chunk.state.sides[mode].size ** 2 * item.bucket.like.element_size()
        for item in due.values()
        for mode, start, stop in item.due
    ]
    if len(sizes) < 2 or sum(sizes) > MAX_BYTES:
        return {}
    for item in due.values():
        update_gram_factors(gradient(item), item.chunk.state, item.at)
    calls = {
        (index, mode): solver_call(item.chunk.state.rows(start, stop), mode, h, item.at)
        for index, item in due.items()
        for mode, start, stop in item.due
    }
    wanted = {key: call for key, call in calls.items() if call is not None}
    results = dict(zip(wanted, per_matrix_together(list(wanted.values())), strict=True))
    return {
        index: {mode: results[index, mode] for mode, _, _ in item.due if (index, mode) in results}
        for index, item in due.items()
    }
