"""What a configuration costs, from parameter shapes alone: bytes of state, operations and kernels. Allocates nothing.

Operations count a multiplication and an addition as two, and matrix products only: with numel entries in a block of
sides d_i a product along side i is 2·numel·d_i, and so is a Gram matrix. Elementwise work is linear in the parameters
and bounded by memory instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from shampoo.block_state import state_layout
from shampoo.blocking import regions
from shampoo.buckets import max_chunk_blocks
from shampoo.hyperparameters import DEFAULTS, Hyperparameters
from shampoo.sides import side_kinds

# Square matrix products of d×d that the refresh of one factor is worth: an eigendecomposition by LAPACK's
# divide and conquer is 9 d³ (4/3 for the tridiagonal form, the rest for vectors) at well below their speed.
_REFRESH_CUBES: Mapping[str, float] = {"eigh": 9.0, "eigh64": 9.0, "qr": 2 + 2 + 8 / 3, "cholesky_qr": 2 + 2 + 14 / 3}
_NEWTON_ITERATIONS = 18
_NEWTON_PRODUCTS = 4


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of one optimizer on one process."""

    state_bytes: int
    """Exactly what `Shampoo` allocates in its state; its scratch memory, `scratch_bytes`, comes on top."""
    preconditioner_bytes: int
    """The part of it that belongs to Kronecker factors: factors, roots, bases, eigenvalues and their counters."""
    scratch_bytes: int
    """Upper bound of the working memory that is kept between steps: three times the largest chunk. A refresh needs some
    matrices of the size of the factors at hand beside it."""
    num_blocks: int
    """Blocks that have a preconditioner."""
    step_operations: int
    """Floating-point operations of the matrix products of a step, statistics included, refresh not."""
    refresh_operations: int
    """Those of refreshing every unit once; coupled Newton with 18 iterations."""
    operations_per_step: float
    """Mean over a refresh period: `step_operations` plus the period's share of `refresh_operations`."""
    num_matrix_products: int
    """Batched matrix products of a step, each of them one kernel where chunks are whole buckets."""


def estimate(
    shapes: Iterable[Sequence[int]], *, dtype: torch.dtype = torch.float32, device: str = "cpu", **config: Any
) -> Cost:
    """The cost of `Shampoo(params, **config)` for parameters of these shapes and dtype in one group.

    `device` is the type of the device, which decides how much is worked on at a time.

    Raises:
        ValueError: an unknown or illegal hyperparameter.
    """
    unknown = sorted(set(config) - set(DEFAULTS))
    if unknown:
        raise ValueError(f"unknown hyperparameter {unknown[0]!r} = {config[unknown[0]]!r}")
    h = Hyperparameters(**{**DEFAULTS, **config})
    working = torch.promote_types(dtype, torch.float32)
    counts: dict[tuple[int, ...], int] = {}
    total_bytes = preconditioner_bytes = 0
    for shape in shapes:
        total_bytes += torch.int64.itemsize  # num_skipped
        if h.low_precision_weights == "master" and working != dtype:
            total_bytes += math.prod(shape) * working.itemsize
        for region in regions(shape, h):
            counts[region.block] = counts.get(region.block, 0) + region.num_blocks
    step_operations = refresh_operations = num_products = num_blocks = 0
    scratch = 0
    for block, num in counts.items():
        for name, (tensor_shape, tensor_dtype) in state_layout(block, h, working).items():
            size = num * math.prod(tensor_shape) * tensor_dtype.itemsize
            total_bytes += size
            if name not in ("first_moment", "second_moment", "momentum"):
                preconditioner_bytes += size
        products, per_step, per_refresh = _operations(block, h)
        num_products += products
        step_operations += num * per_step
        refresh_operations += num * per_refresh
        num_blocks += num if products else 0
        rows = min(num, max_chunk_blocks(block, device, working.itemsize))
        scratch = max(scratch, 3 * rows * math.prod(block) * working.itemsize)
    return Cost(
        state_bytes=total_bytes,
        preconditioner_bytes=preconditioner_bytes,
        scratch_bytes=scratch,
        num_blocks=num_blocks,
        step_operations=step_operations,
        refresh_operations=refresh_operations,
        operations_per_step=step_operations + refresh_operations / h.refresh_period,
        num_matrix_products=num_products,
    )


def _operations(block: Sequence[int], h: Hyperparameters) -> tuple[int, int, int]:
    """Matrix products of a step, their operations, and the operations of a refresh, for one block."""
    numel = math.prod(block)
    if h.preconditioner == "spectral" and len(block) > 1:
        short, long = sorted((block[0], numel // block[0]))
        return 15, 5 * (2 * short * short * long * 2 + 2 * short**3), 0
    full = [d for d, kind in zip(block, side_kinds(block, h), strict=False) if kind == "full"]
    if not full:
        return 0, 0, 0
    one_each = sum(2 * numel * d for d in full)
    gram = 0 if h.low_precision_state else one_each / h.statistics_period
    applications = {"shampoo": 1, "soap": 2, "kl": 2}[h.preconditioner]
    products = len(full) * ((0 if h.low_precision_state else 1) + applications)
    operations = gram + applications * one_each
    if h.preconditioner == "kl":
        # A side's sample needs the products along the sides after it.
        after = [2 * numel * sum(full[i + 1 :]) for i in range(len(full))]
        operations += sum(after) / h.statistics_period
        products += sum(len(full) - 1 - i for i in range(len(full)))
    return products, round(operations), round(sum(_refresh_operations(d, numel, h) for d in full))


def _refresh_operations(d: int, numel: int, h: Hyperparameters) -> float:
    solver = h.resolved_solver
    if solver == "coupled_newton":
        return 2.0 * _NEWTON_ITERATIONS * _NEWTON_PRODUCTS * d**3
    cubes = _REFRESH_CUBES[solver]
    if h.preconditioner == "shampoo":
        return (cubes + 2) * d**3  # QΛQᵀ
    moments = (1 if h.betas[0] > 0 else 0) + (1 if h.preconditioner == "soap" else 0)
    return (cubes + 2) * d**3 + moments * 2 * numel * d  # QᵀQ', and the moments' change of basis
