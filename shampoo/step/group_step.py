"""One step of the parameters of a group: gradients go into the blocks of its buckets, directions into the weights."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from shampoo.hyperparameters import Hyperparameters
from shampoo.state.buckets import Bucket, scratch_elements
from shampoo.step.autocast import own_precision
from shampoo.step.block_step import Scratch, Solved, block_direction, update_gram_factors
from shampoo.step.chunk_schedule import ChunkStep, chunk_steps, step_chunks
from shampoo.step.failures import RefreshFailures
from shampoo.step.grafting import is_adamw
from shampoo.step.weights import Flag, Weights, finite_gradients


class Slab:
    """Memory for three tensors, and views of it, which are kept: making them takes as long as a small chunk's
    arithmetic."""

    def __init__(self, like: Tensor) -> None:
        self.memory = like.new_empty(3, 0)
        self._views: dict[tuple[int, ...], Scratch] = {}

    def of_shape(self, shape: tuple[int, ...]) -> Scratch:
        """Three tensors of this shape, with arbitrary contents; the memory grows if they do not fit."""
        if shape not in self._views:
            numel = math.prod(shape)
            if self.memory.shape[1] < numel:
                self.memory = self.memory.new_empty(3, scratch_elements(numel))
                self._views.clear()
            first, second, third = self.memory[:, :numel].view(3, *shape).unbind()
            self._views[shape] = first, second, third
        return self._views[shape]


class GroupStep:
    """Steps groups, in scratch memory that it keeps from step to step."""

    def __init__(self, failures: RefreshFailures) -> None:
        self.scratch: dict[tuple[torch.device, torch.dtype], list[Slab]] = {}
        """The slabs that no thread is using."""
        self._failures = failures

    def __call__(
        self,
        params: Sequence[Tensor],
        buckets: Sequence[Bucket],
        h: Hyperparameters,
        *,
        kept: float,
        state: Mapping[Tensor, dict[str, Any]],
        positions: Mapping[Tensor, int],
        norms: Mapping[Tensor, Tensor],
    ) -> None:
        """Steps the parameters that have a finite gradient; `kept` is what weight decay leaves of the weights, `norms`
        what is known of the gradients' norms.

        Every block goes through the same phases: the direction from gradient and state, and its application. A chunk
        is applied as soon as it is computed, while it is in the cache.
        """
        present = [param for param in params if param.grad is not None and param.numel() > 0]
        finite = finite_gradients(present, [state[param]["num_skipped"] for param in present], norms, kept=kept)
        steps: dict[Tensor, int] = {}
        for param in finite.taking_part:
            of_param = state[param]
            of_param["step"] += 1
            steps[param] = of_param["step"]
        weights = Weights(steps, state, h, positions=positions)
        work = chunk_steps(buckets, steps, h)

        def update(item: ChunkStep) -> None:
            with self._gradient(item, weights, finite.of_pieces(item.chunk.pieces), h) as scratch:
                update_gram_factors(scratch[0], item.chunk.state, item.at)

        def step(item: ChunkStep, solved: Solved | None) -> None:
            bucket, chunk = item.bucket, item.chunk
            flags = finite.of_pieces(chunk.pieces)
            is_adamws = bucket.is_large and is_adamw(h, bucket.like.device.type)
            if flags is not None and is_adamws and weights.are_in(chunk, bucket.like.dtype):
                weights.adamw_where_finite(chunk, h, step=item.step, kept=kept, flags=flags)
                return
            with self._gradient(item, weights, flags, h) as scratch:
                P = block_direction(
                    scratch,
                    chunk.state,
                    h,
                    item.at,
                    step=item.step,
                    due=item.due,
                    all_refreshed=bucket.all_refreshed,
                    solved=solved,
                )
                spare = next(x for x in scratch if x is not P.tensor)
                if flags is None:
                    weights.move(chunk, P, h.lr, kept=kept, spare=spare)
                else:
                    weights.move_where_finite(chunk, P, h.lr, kept=kept, flags=flags, spare=spare)

        with own_precision(bucket.like for bucket in buckets):
            step_chunks(work, h, update, step)
        for item in work:
            self._note_refreshes(item, h)
        weights.write_back()

    @contextlib.contextmanager
    def _gradient(
        self, item: ChunkStep, weights: Weights, flags: Sequence[Flag] | None, h: Hyperparameters
    ) -> Iterator[Scratch]:
        """Scratch memory whose first tensor holds the gradient of a chunk, L2 decay included. If only the device knows
        that the gradient of a row is not finite, the row is 0.

        The memory is kept from step to step, and each thread that computes has its own. Fresh temporaries cost five
        times the arithmetic on the CPU: the allocator maps and unmaps large ones.
        """
        chunk, like = item.chunk, item.bucket.like
        kept = self.scratch.setdefault((like.device, like.dtype), [])
        try:
            slab = kept.pop()
        except IndexError:  # all are in use
            slab = Slab(like)
        scratch = slab.of_shape((chunk.stop - chunk.start, *item.bucket.block))
        l2 = h.weight_decay if h.weight_decay_type == "l2" else 0.0
        weights.write_gradient(chunk, scratch[0], flags, l2=l2)
        yield scratch
        kept.append(slab)

    def _note_refreshes(self, item: ChunkStep, h: Hyperparameters) -> None:
        bucket, chunk = item.bucket, item.chunk
        for side, _, _ in item.due:
            counter = chunk.state.sides[side].num_failed_in_a_row
            if counter is not None:
                where = f"factor {side} of a block {bucket.block} of a parameter {chunk.pieces[0].shape}"
                self._failures.note(counter, limit=h.max_failed_refreshes, where=where)
        if item.due and not bucket.all_refreshed:
            bucket.look_at_refreshes()
