"""What the optimizer knows about its own health, computed when asked for: `step` pays nothing for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from shampoo.block_state import BlockState, Side
from shampoo.block_step import block_direction
from shampoo.buckets import Bucket, Chunk
from shampoo.hyperparameters import DEFAULT_GRAFTING_EPSILON, Hyperparameters
from shampoo.timing import step_scalars


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """Plain numbers; None where there is nothing to measure."""

    num_skipped: int
    """Gradients that were not finite, over all parameters and steps."""
    num_failed_refreshes: int
    """Refreshes that kept the previous root or basis, over all factors and steps."""
    share_preconditioned: float
    """Share of the elements that are preconditioned by now, in [0, 1]."""
    condition_median: float | None
    """Condition number of the damped factors at their last refresh, over factors."""
    condition_max: float | None
    residual_max: float | None
    """Largest residual of the last refreshes: what the solver left undone (0 for eigh)."""
    update_to_weight_median: float | None
    """lr·‖P‖/‖W‖ of the next step if it took the present gradients, over parameters that have one: without weight
    decay, statistics and refreshes."""
    update_to_weight_max: float | None
    grafting_ratio_median: float | None
    """‖N(F)‖ over ‖F ×_i P_i‖ per block: by what grafting stretches the preconditioned step. None without grafting."""
    grafting_ratio_max: float | None

    def as_metrics(self) -> dict[str, float]:
        """The numbers that there are, by name."""
        return {name: float(value) for name, value in dataclasses.asdict(self).items() if value is not None}


@torch.no_grad()
def diagnose(
    groups: Sequence[tuple[Mapping[str, Any], Hyperparameters, Sequence[Bucket]]],
    state: Mapping[Tensor, Mapping[str, Any]],
) -> Diagnostics:
    """The diagnostics of parameter groups, with their buckets and the state by parameter; changes nothing."""
    skipped = sum(int(state[param]["num_skipped"]) for group, _, _ in groups for param in group["params"])
    sides = [side for _, _, buckets in groups for bucket in buckets for side in bucket.state.sides]
    sides = [side for side in sides if side.refreshed is not None]
    conditions = [_of_refreshed(side, side.condition) for side in sides if side.kind == "full"]
    residuals = [_of_refreshed(side, side.residual) for side in sides if side.kind == "full"]
    total = preconditioned = 0
    ratios: list[Tensor] = []
    grafts: list[Tensor] = []
    for group, h, buckets in groups:
        norms = {param: torch.zeros((), dtype=torch.float64) for param in group["params"]}
        for bucket in buckets:
            numel = bucket.like.new_empty(bucket.block).numel()
            total += bucket.num_blocks * numel
            preconditioned += numel * _num_preconditioned(bucket, h)
            for piece_norms, graft in _of_bucket(bucket, h, state):
                for param, squared in piece_norms.items():
                    norms[param] += squared
                grafts.extend(graft)
        for param, squared in norms.items():
            weight = param.norm().double().cpu()
            if squared > 0 and weight > 0:
                ratios.append(h.lr * squared.sqrt() / weight)
    return Diagnostics(
        num_skipped=skipped,
        num_failed_refreshes=sum(int(side.num_failed.sum()) for side in sides if side.num_failed is not None),
        share_preconditioned=preconditioned / total if total else 0.0,
        condition_median=_median(conditions),
        condition_max=_max(conditions),
        residual_max=_max(residuals),
        update_to_weight_median=_median(ratios),
        update_to_weight_max=_max(ratios),
        grafting_ratio_median=_median(grafts),
        grafting_ratio_max=_max(grafts),
    )


def _of_bucket(
    bucket: Bucket, h: Hyperparameters, state: Mapping[Tensor, Mapping[str, Any]]
) -> Iterator[tuple[dict[Tensor, Tensor], list[Tensor]]]:
    """Squared norm of the direction by parameter, and grafting ratios, chunk by chunk."""
    steps = {
        piece.param: state[piece.param]["step"] + 1
        for piece in bucket.pieces
        if piece.param.grad is not None and bool(piece.param.grad.isfinite().all())
    }
    for step, chunk in bucket.chunks(steps):
        P = _direction(bucket, chunk, h, step)
        squared = {
            piece.param: part.double().square().sum().cpu()
            for piece, part in zip(chunk.pieces, chunk.parts(P), strict=True)
        }
        grafts: list[Tensor] = []
        if h.preconditioner == "shampoo" and h.grafting_method != "none" and chunk.state.sides:
            raw = dataclasses.replace(
                h,
                grafting="none",
                grafting_beta2=None,
                grafting_epsilon=DEFAULT_GRAFTING_EPSILON,
                momentum=0.0,
                nesterov=False,
            )
            grafted = _direction(bucket, chunk, dataclasses.replace(h, momentum=0.0, nesterov=False), step)
            lengths = [X.flatten(1).norm(dim=1) for X in (grafted, _direction(bucket, chunk, raw, step))]
            ratio = lengths[0] / lengths[1]
            grafts.append(ratio[ratio.isfinite()].cpu())
        yield squared, grafts


def _direction(bucket: Bucket, chunk: Chunk, h: Hyperparameters, step: int) -> Tensor:
    """The direction along the present gradients, computed in copies."""
    shape = (chunk.stop - chunk.start, *bucket.block)
    scratch = (bucket.like.new_empty(shape), bucket.like.new_empty(shape), bucket.like.new_empty(shape))
    for part, piece in zip(chunk.parts(scratch[0]), chunk.pieces, strict=True):
        gradient = piece.param.grad
        assert gradient is not None
        part.copy_(piece.region.view(gradient.contiguous()))
    at = dataclasses.replace(step_scalars(h, step, has_factors=bool(chunk.state.sides)), update_statistics=False)
    copied = _copy(chunk.state)
    if h.momentum == 0:
        copied = dataclasses.replace(copied, momentum=None)
    return block_direction(scratch, copied, h, at, step=step, due=(), all_refreshed=bucket.all_refreshed).clone()


def _copy(state: BlockState) -> BlockState:
    """The state with its own moments; factors are not written without statistics and refreshes."""

    def own(x: Tensor | None) -> Tensor | None:
        return None if x is None else x.clone()

    return BlockState(
        sides=tuple(_copy_side(side, own) for side in state.sides),
        first_moment=own(state.first_moment),
        second_moment=own(state.second_moment),
        momentum=own(state.momentum),
    )


def _copy_side(side: Side, own: Callable[[Tensor | None], Tensor | None]) -> Side:
    # kl sets its factors up in its first step.
    basis = side.basis
    if basis is not None:
        basis = dataclasses.replace(basis, tensors={name: x.clone() for name, x in basis.tensors.items()})
    return dataclasses.replace(
        side,
        basis=basis,
        factor=own(side.factor),
        eigenvalues=own(side.eigenvalues),
        refreshed=own(side.refreshed),
        num_failed=own(side.num_failed),
        num_failed_in_a_row=own(side.num_failed_in_a_row),
        condition=own(side.condition),
        residual=own(side.residual),
    )


def _num_preconditioned(bucket: Bucket, h: Hyperparameters) -> int:
    if not bucket.state.sides:
        return bucket.num_blocks if h.preconditioner == "spectral" and len(bucket.block) > 1 else 0
    ready = torch.ones(bucket.num_blocks, dtype=torch.bool)
    for side in bucket.state.sides:
        if side.refreshed is not None:
            ready &= side.refreshed > 0
    return int(ready.sum())


def _of_refreshed(side: Side, values: Tensor | None) -> Tensor:
    assert values is not None
    assert side.refreshed is not None
    return values.cpu()[side.refreshed > 0]


def _all(parts: Sequence[Tensor]) -> Tensor:
    flat = torch.cat([part.flatten().double() for part in parts]) if parts else torch.zeros(0)
    return flat[flat.isfinite()]


def _median(parts: Sequence[Tensor]) -> float | None:
    values = _all(parts)
    return values.median().item() if len(values) else None


def _max(parts: Sequence[Tensor]) -> float | None:
    values = _all(parts)
    return values.max().item() if len(values) else None
