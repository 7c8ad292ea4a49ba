"""The health of an optimizer, measured from its own state on request: `step` pays nothing for it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from shampoo.hyperparameters import DEFAULTS, Hyperparameters
from shampoo.state.buckets import Bucket, Chunk, state_dtype
from shampoo.state.timing import step_scalars
from shampoo.step.autocast import own_precision
from shampoo.step.block_step import block_direction


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """Plain numbers; None if there is nothing to measure."""

    num_skipped: int
    """Gradients that were not finite, over all parameters and steps."""
    num_failed_refreshes: int
    """Refreshes that kept the previous root or basis, over all factors and steps."""
    share_preconditioned: float
    """Share of the elements that are now preconditioned, in [0, 1]."""
    condition_median: float | None
    """Condition number of the damped factors at their last refresh, over factors."""
    condition_max: float | None
    residual_max: float | None
    """Largest residual of the last refreshes: the remaining error of the solver (0 for eigh)."""
    update_to_weight_median: float | None
    """lr·‖P‖/‖W‖ of the next step if it took the current gradients, over parameters that have one; without weight
    decay, statistics and refreshes."""
    update_to_weight_max: float | None
    grafting_ratio_median: float | None
    """‖N(F)‖ / ‖F ×_i P_i‖ per block: the factor by which grafting stretches the preconditioned step. None without
    grafting."""
    grafting_ratio_max: float | None

    def as_metrics(self) -> dict[str, float]:
        """The numbers that are not None, by name."""
        return {name: float(value) for name, value in dataclasses.asdict(self).items() if value is not None}


@dataclass(slots=True)
class ParameterHealth:
    """Measurements of one parameter, or of a part of it; lists have one number for each factor or block."""

    num_skipped: int = 0
    num_failed_refreshes: int = 0
    numel: int = 0
    num_preconditioned: int = 0
    """Elements."""
    conditions: list[float] = dataclasses.field(default_factory=list)
    residuals: list[float] = dataclasses.field(default_factory=list)
    lr: float = 0.0
    squared_direction: float = 0.0
    squared_weight: float = 0.0
    grafting_ratios: list[float] = dataclasses.field(default_factory=list)

    @property
    def update_to_weight(self) -> list[float]:
        """lr·‖P‖/‖W‖, if there is a step."""
        if self.squared_direction == 0 or self.squared_weight == 0:
            return []
        return [self.lr * math.sqrt(self.squared_direction) / math.sqrt(self.squared_weight)]


@torch.no_grad()
def measure(
    params: Sequence[Tensor],
    h: Hyperparameters,
    buckets: Sequence[Bucket],
    state: Mapping[Tensor, Mapping[str, Any]],
    norms: Mapping[Tensor, Tensor],
) -> dict[Tensor, ParameterHealth]:
    """Measurements of the parameters of a group, with their buckets and the state by parameter; changes nothing.

    `norms` are those of whole gradients, for parameters that are parts of others.
    """
    found = {
        param: ParameterHealth(
            num_skipped=int(state[param]["num_skipped"]),
            lr=h.lr,
            squared_weight=param.double().square().sum().item(),
        )
        for param in params
    }
    steps = {param: state[param]["step"] + 1 for param in params if _has_finite_gradient(param, norms)}
    for bucket in buckets:
        _measure_bucket(bucket, h, found)
        with own_precision([bucket.like]):
            for squared_norms, grafts in _of_bucket(bucket, h, steps):
                for param, squared in squared_norms.items():
                    found[param].squared_direction += squared.item()
                for param, ratios in grafts:
                    found[param].grafting_ratios.extend(ratios.tolist())
    return found


def merged(parts: Sequence[ParameterHealth]) -> ParameterHealth:
    """The measurements of a parameter, from those of its parts."""
    return ParameterHealth(
        num_skipped=parts[0].num_skipped,  # for the whole parameter: every part counts it
        num_failed_refreshes=sum(part.num_failed_refreshes for part in parts),
        numel=sum(part.numel for part in parts),
        num_preconditioned=sum(part.num_preconditioned for part in parts),
        conditions=[x for part in parts for x in part.conditions],
        residuals=[x for part in parts for x in part.residuals],
        lr=parts[0].lr,
        squared_direction=sum(part.squared_direction for part in parts),
        squared_weight=sum(part.squared_weight for part in parts),
        grafting_ratios=[x for part in parts for x in part.grafting_ratios],
    )


def summarise(measured: Collection[ParameterHealth]) -> Diagnostics:
    """The diagnostics of parameters."""
    total = sum(one.numel for one in measured)
    conditions = [x for one in measured for x in one.conditions]
    residuals = [x for one in measured for x in one.residuals]
    ratios = [x for one in measured for x in one.update_to_weight]
    grafts = [x for one in measured for x in one.grafting_ratios]
    return Diagnostics(
        num_skipped=sum(one.num_skipped for one in measured),
        num_failed_refreshes=sum(one.num_failed_refreshes for one in measured),
        share_preconditioned=sum(one.num_preconditioned for one in measured) / total if total else 0.0,
        condition_median=_median(conditions),
        condition_max=_max(conditions),
        residual_max=_max(residuals),
        update_to_weight_median=_median(ratios),
        update_to_weight_max=_max(ratios),
        grafting_ratio_median=_median(grafts),
        grafting_ratio_max=_max(grafts),
    )


def _measure_bucket(bucket: Bucket, h: Hyperparameters, found: Mapping[Tensor, ParameterHealth]) -> None:
    """Adds the measurements in the state of a bucket."""
    numel = math.prod(bucket.block)
    preconditioned = _preconditioned(bucket, h)
    for piece in bucket.pieces:
        found[piece.param].numel += numel * (piece.stop - piece.start)
        found[piece.param].num_preconditioned += numel * int(preconditioned[piece.start : piece.stop].sum())
    for side in bucket.state.sides:
        if side.refreshed is None:
            continue
        assert side.num_failed is not None
        assert side.condition is not None
        assert side.residual is not None
        refreshed, num_failed = side.refreshed > 0, side.num_failed.cpu()
        numbers = side.condition.cpu(), side.residual.cpu()
        for piece in bucket.pieces:
            rows = slice(piece.start, piece.stop)
            of_param = found[piece.param]
            of_param.num_failed_refreshes += int(num_failed[rows].sum())
            if side.kind == "full":
                of_param.conditions.extend(numbers[0][rows][refreshed[rows]].tolist())
                of_param.residuals.extend(numbers[1][rows][refreshed[rows]].tolist())


def _has_finite_gradient(param: Tensor, norms: Mapping[Tensor, Tensor]) -> bool:
    """True if a step would take the gradient: decided by its norm, as in `finite_gradients`."""
    if param.grad is None:
        return False
    norm = norms.get(param)
    if norm is None:
        norm = torch.linalg.vector_norm(param.grad, dtype=state_dtype(param.dtype))
    return bool(norm.isfinite())


def _of_bucket(
    bucket: Bucket, h: Hyperparameters, steps: Mapping[Tensor, int]
) -> Iterator[tuple[dict[Tensor, Tensor], list[tuple[Tensor, Tensor]]]]:
    """Squared norm of the direction by parameter, and parameters with grafting ratios, chunk by chunk, for parameters
    that have a step."""
    for step, chunk in bucket.chunks(steps):
        P = _direction(bucket, chunk, h, step)
        squared: dict[Tensor, Tensor] = {}
        for piece, part in zip(chunk.pieces, chunk.parts(P), strict=True):
            own = part.double().square().sum().cpu()
            squared[piece.param] = squared[piece.param] + own if piece.param in squared else own
        grafts: list[tuple[Tensor, Tensor]] = []
        if h.preconditioner == "shampoo" and h.grafting_method != "none" and chunk.state.sides:
            raw = dataclasses.replace(
                h,
                grafting="none",
                grafting_beta2=None,
                grafting_epsilon=DEFAULTS["grafting_epsilon"],
                momentum=0.0,
                nesterov=False,
            )
            grafted = _direction(bucket, chunk, dataclasses.replace(h, momentum=0.0, nesterov=False), step)
            lengths = [X.flatten(1).norm(dim=1) for X in (grafted, _direction(bucket, chunk, raw, step))]
            ratio = (lengths[0] / lengths[1]).cpu()
            for piece in chunk.pieces:
                own = ratio[piece.start - chunk.start : piece.stop - chunk.start]
                grafts.append((piece.param, own[own.isfinite()]))
        yield squared, grafts


def _direction(bucket: Bucket, chunk: Chunk, h: Hyperparameters, step: int) -> Tensor:
    """The direction for the current gradients, computed in copies."""
    shape = (chunk.stop - chunk.start, *bucket.block)
    scratch = (bucket.like.new_empty(shape), bucket.like.new_empty(shape), bucket.like.new_empty(shape))
    for part, piece in zip(chunk.parts(scratch[0]), chunk.pieces, strict=True):
        gradient = piece.param.grad
        assert gradient is not None
        part.copy_(piece.region.view(gradient.contiguous()))
    at = dataclasses.replace(step_scalars(h, step, has_factors=bool(chunk.state.sides)), update_statistics=False)
    copied = chunk.state.clone()
    if h.momentum == 0:
        copied = dataclasses.replace(copied, momentum=None)
    P = block_direction(scratch, copied, h, at, step=step, due=(), all_refreshed=bucket.all_refreshed)
    return P.tensor * P.factor


def _preconditioned(bucket: Bucket, h: Hyperparameters) -> Tensor:
    """True for each block that is now preconditioned, (K,) bool."""
    ready = torch.ones(bucket.num_blocks, dtype=torch.bool, device="cpu")
    if not bucket.state.sides:
        return ready if h.preconditioner == "spectral" and len(bucket.block) > 1 else ~ready
    for side in bucket.state.sides:
        if side.refreshed is not None:
            ready &= side.refreshed > 0
    return ready


def _finite(values: Sequence[float]) -> Tensor:
    numbers = torch.tensor(values, dtype=torch.float64, device="cpu")
    return numbers[numbers.isfinite()]


def _median(values: Sequence[float]) -> float | None:
    numbers = _finite(values)
    return numbers.median().item() if len(numbers) else None


def _max(values: Sequence[float]) -> float | None:
    numbers = _finite(values)
    return numbers.max().item() if len(numbers) else None
