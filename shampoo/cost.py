"""The cost of a configuration, computed only from parameter shapes: bytes of state, operations, kernels. Allocates
nothing.

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

from shampoo.hyperparameters import DEFAULTS, Hyperparameters, Solver
from shampoo.state.block_state import state_layout
from shampoo.state.blocking import regions
from shampoo.state.buckets import READABLE_DEVICES, is_large, max_chunk_blocks, scratch_elements
from shampoo.state.factors import side_kinds
from shampoo.step.grafting import is_adamw
from shampoo.step.refresh import gives_change

# Operations of the refresh of one d×d factor, in d³. An eigendecomposition by LAPACK's divide and conquer takes 9 (4/3
# for the tridiagonal form, the rest for vectors), well below the speed of products. A followed basis takes two products
# and a QR decomposition with its Q (4/3 each), or two passes of a Gram matrix, a Cholesky decomposition and a
# triangular solve.
_REFRESH_CUBES: Mapping[str, float] = {"eigh": 9.0, "eigh64": 9.0, "qr": 4 + 8 / 3, "cholesky_qr": 4 + 2 * (2 + 4 / 3)}
_NEWTON_ITERATIONS = 18
"""Iterations of coupled Newton: the middle of the 10 to 26 that it makes."""
_NEWTON_SQUARINGS = 12
"""Squarings of `coupled_newton`: 8 for the largest eigenvalue of A and 4 for that of X."""
# Eigenvectors of 4 bit: reading them takes two products and a triangular solve, writing them a QR decomposition. In
# every step soap reads them once and kl twice.
_READ_PRODUCTS, _READ_CUBES, _WRITE_CUBES = 2, 5.0, 4 / 3
_READS_OF_STEP: Mapping[str, int] = {"shampoo": 0, "soap": 1, "kl": 2}

# Kernels that an accelerator launches, as counted with float32 state. In an ordinary step: for a group, for a bucket
# without a matrix, for a bucket with one, and for each of its sides that has a matrix. In a refresh: for each such
# side.
_GROUP_KERNELS, _PLAIN_KERNELS = 12, 10
_STEP_KERNELS: Mapping[str, tuple[int, int]] = {
    "shampoo": (16, 2),
    "soap": (8, 3),
    "kl": (4, 24),
    "spectral": (34, 0),
}
_ROWS_KERNELS, _STANDARDIZING_KERNELS, _LEADING_KERNELS = 11, 10, 70
_REFRESH_KERNELS: Mapping[str, int] = {"eigh": 60, "eigh64": 60, "qr": 70, "cholesky_qr": 130, "coupled_newton": 415}
_SCALE_KERNELS = 42
"""Kernels with which kl's factors follow the gradient's scale, for a bucket with matrices, at the beginning of a
period."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of one optimizer on one process."""

    state_bytes: int
    """Exactly what `Shampoo` allocates in its state; its scratch memory, `scratch_bytes`, comes on top."""
    preconditioner_bytes: int
    """The part of it that belongs to Kronecker factors (factors, roots, bases, eigenvalues and their counters), or to
    the leading eigenvectors of spectral with a rank."""
    scratch_bytes: int
    """Upper bound of the working memory that a thread keeps between steps: three times the largest chunk. A step uses
    one thread, except for large models on the CPU (`chunk_schedule`). On a GPU, plain parameters of a million elements
    or more need none. A refresh also needs some matrices of the size of the current factors."""
    num_blocks: int
    """Blocks that have a preconditioner."""
    step_operations: int
    """Floating-point operations of the matrix products of a step, including statistics, without refreshes."""
    refresh_operations: int
    """Operations of refreshing every unit once, decompositions included; coupled Newton with 18 iterations, although it
    may take 10 to 26."""
    operations_per_step: float
    """Mean over a refresh period: `step_operations` plus the period's share of `refresh_operations`."""
    num_matrix_products: int
    """Batched matrix products of a step with statistics; each is one kernel if chunks are whole buckets."""
    step_kernels: int
    """Kernels that a step without a refresh launches on an accelerator, if chunks are whole buckets: within 20% of the
    count with float32 state and few parameters in each bucket. Each further parameter of a bucket adds three if it has
    a million elements or more, or is cut into blocks of columns, which are strided; each plain parameter of a million
    elements or more has a kernel of its own."""
    refresh_kernels: int
    """Kernels that refreshing all units at once adds; coupled Newton with as many iterations as epsilon=1e-6 allows."""


def estimate(
    shapes: Iterable[Sequence[int]], *, dtype: torch.dtype = torch.float32, device: str = "cpu", **config: Any
) -> Cost:
    """The cost of `Shampoo(params, **config)` for parameters of these shapes and dtype in one group.

    Frozen parameters have no state and no steps: leave their shapes out.

    `device` is the type of the device, which decides how much is processed at a time.

    Raises:
        ValueError: an unknown or illegal hyperparameter, a negative size, a single shape in place of shapes, or a
            dtype that is not real floating-point.
    """
    if not dtype.is_floating_point:
        raise ValueError(f"dtype must be real and floating-point, got {dtype}")
    unknown = sorted(set(config) - set(DEFAULTS))
    if unknown:
        raise ValueError(f"unknown hyperparameter {unknown[0]!r} = {config[unknown[0]]!r}")
    h = Hyperparameters(**{**DEFAULTS, **config})
    counts: dict[tuple[int, ...], int] = {}
    num_params = num_elements = num_whole = 0
    # They are stepped in place, because the state has their precision.
    by_kernel = device not in READABLE_DEVICES and is_adamw(h, device) and dtype in (torch.float32, torch.float64)
    for shape in shapes:
        if isinstance(shape, int):
            raise ValueError(f"shapes must be one shape for each parameter, as [(1024, 1024)], got {shapes!r}")
        if any(size < 0 for size in shape):
            raise ValueError(f"shapes must have sizes >= 0, got {tuple(shape)}")
        num_params += 1
        num_elements += math.prod(shape)
        for region in regions(shape, h):
            counts[region.block] = counts.get(region.block, 0) + region.num_blocks
            if by_kernel and is_large(region):
                num_whole += region.num_blocks
    has_masters = h.low_precision_weights == "master"
    return estimate_blocks(
        counts,
        h,
        dtype=dtype,
        device=device,
        num_params=num_params,
        num_master_elements=num_elements if has_masters else 0,
        num_whole=num_whole,
    )


def estimate_blocks(
    counts: Mapping[tuple[int, ...], int],
    h: Hyperparameters,
    *,
    dtype: torch.dtype,
    device: str,
    num_params: int,
    num_master_elements: int,
    num_whole: int = 0,
) -> Cost:
    """The cost of a number of blocks of each shape, which belong to `num_params` parameters.

    Args:
        num_whole: elements of parameters that take AdamW's step in a kernel of their own, without scratch memory.
    """
    working = torch.promote_types(dtype, torch.float32)
    total_bytes = num_params * torch.int64.itemsize  # num_skipped
    if working != dtype:
        total_bytes += num_master_elements * working.itemsize
    preconditioner_bytes = 0
    step_operations = refresh_operations = num_products = num_blocks = step_kernels = refresh_kernels = scratch = 0
    for block, num in counts.items():
        if num == 0:
            continue
        for name, size in _state_bytes(block, h, working).items():
            total_bytes += num * size
            if name not in ("first_moment", "second_moment", "momentum"):
                preconditioner_bytes += num * size
        products, per_step, per_refresh = _operations(block, h, device)
        num_products += products
        step_operations += num * per_step
        refresh_operations += num * per_refresh
        num_blocks += num if products else 0
        for_step, for_refresh = _kernels(block, h, device)
        step_kernels += for_step
        refresh_kernels += for_refresh
        in_scratch = num if block else num - num_whole
        rows = min(in_scratch, max_chunk_blocks(block, device, working.itemsize))
        scratch = max(scratch, 3 * scratch_elements(rows * math.prod(block)) * working.itemsize)
    return Cost(
        state_bytes=total_bytes,
        preconditioner_bytes=preconditioner_bytes,
        scratch_bytes=scratch,
        num_blocks=num_blocks,
        step_operations=step_operations,
        refresh_operations=refresh_operations,
        operations_per_step=step_operations + refresh_operations / h.refresh_period,
        num_matrix_products=num_products,
        step_kernels=_GROUP_KERNELS + step_kernels if step_kernels else 0,
        refresh_kernels=refresh_kernels,
    )


def cost_of_block(block: tuple[int, ...], h: Hyperparameters, *, dtype: torch.dtype, device: str) -> tuple[float, int]:
    """Operations of a mean step and bytes of state of one block; the block () is an element without preconditioner."""
    _, per_step, per_refresh = _operations(block, h, device)
    state_bytes = sum(_state_bytes(block, h, torch.promote_types(dtype, torch.float32)).values())
    return per_step + per_refresh / h.refresh_period, state_bytes


def _state_bytes(block: tuple[int, ...], h: Hyperparameters, working: torch.dtype) -> dict[str, int]:
    """Bytes of one block's state, by the name of the tensor."""
    return {name: math.prod(shape) * dtype.itemsize for name, (shape, dtype) in state_layout(block, h, working).items()}


def _kernels(block: Sequence[int], h: Hyperparameters, device: str) -> tuple[int, int]:
    """Kernels of a step and of a refresh for the bucket of such blocks."""
    num_matrices = sum(kind == "full" for kind in side_kinds(block, h))
    if num_matrices == 0 and (h.preconditioner != "spectral" or len(block) < 2):
        return _PLAIN_KERNELS, 0
    once, for_each = _STEP_KERNELS[h.preconditioner]
    if h.preconditioner == "spectral":
        more = h.standardize_rows * _STANDARDIZING_KERNELS + (h.rank is not None) * _LEADING_KERNELS
        once = _ROWS_KERNELS if h.matrix_norm == "rows" else once + more
    of_scale = (h.preconditioner == "kl") * _SCALE_KERNELS
    return once + for_each * num_matrices, num_matrices * _REFRESH_KERNELS[h.solver_on(device)] + of_scale


def _operations(block: Sequence[int], h: Hyperparameters, device: str) -> tuple[int, int, int]:
    """Matrix products of a step, their operations, and the operations of a refresh, for one block."""
    numel = math.prod(block)
    if h.preconditioner == "spectral" and h.matrix_norm == "spectral" and len(block) > 1:
        # Five polynomials of three products each.
        short, long = sorted((block[0], numel // block[0]))
        polynomials = 5 * (2 * short * short * long * 2 + 2 * short**3)
        if h.rank is None:
            return 15, polynomials, 0
        # Three products into the subspace and three out of it, one fewer without an average of gradients; and those
        # with S.
        r, num_large = min(h.rank, short), 6 if h.betas[0] > 0 else 5
        return 15 + num_large + 5, polynomials + 2 * r * (num_large * numel + (2 * short + long + 2 * r) * r), 0
    kinds = side_kinds(block, h)
    full = [d for d, kind in zip(block, kinds, strict=False) if kind == "full"]
    if not full:
        return 0, 0, 0
    one_each = sum(2 * numel * d for d in full)
    applications = {"shampoo": 1, "soap": 2, "kl": 2}[h.preconditioner]
    products, operations = len(full) * applications, float(applications * one_each)
    if h.state_dtype == "int4":
        reads = _READS_OF_STEP[h.preconditioner]
        products += len(full) * reads * _READ_PRODUCTS
        operations += reads * _READ_CUBES * sum(d**3 for d in full)
    if not h.low_precision_state:
        products += len(full)
        operations += one_each / h.statistics_period
        if h.preconditioner == "kl":
            # A side's sample needs the products along the sides after it.
            products += sum(len(full) - 1 - i for i in range(len(full)))
            operations += sum(2 * numel * sum(full[i + 1 :]) for i in range(len(full))) / h.statistics_period
    # A diagonal factor is one too.
    root_order = round(1 / h.exponent_override) if h.exponent_override else 2 * sum(k != "identity" for k in kinds)
    refresh = sum(_refresh_operations(d, numel, full, root_order, h, h.solver_on(device)) for d in full)
    if h.preconditioner == "kl":
        refresh += one_each  # the gradient goes into the new basis after it went into the old one
    return products, round(operations), round(refresh)


def _refresh_operations(
    d: int, numel: int, full: Sequence[int], root_order: int, h: Hyperparameters, solver: Solver
) -> float:
    """Operations of the refresh of one side of a block; `full` are all its sides that have a matrix."""
    if solver == "coupled_newton":
        power = root_order.bit_length() + root_order.bit_count() - 2  # by repeated squaring
        return 2.0 * (_NEWTON_ITERATIONS * (2 + power) + _NEWTON_SQUARINGS) * d**3
    cubes = _REFRESH_CUBES[solver]
    if not gives_change(h, solver):
        cubes += 2  # QΛQᵀ, or QᵀQ', which otherwise replaces the product for the eigenvalues
    if h.refresh_tolerance > 0:
        cubes += 4  # QᵀAQ
    moments = 0
    if h.preconditioner != "shampoo":
        moments = (1 if h.betas[0] > 0 else 0) + (1 if h.preconditioner == "soap" else 0)
    operations = moments * 2.0 * numel * d  # their change of basis
    if h.low_precision_state:
        cubes += 2 if h.state_dtype == "int4" else 6  # QΛQᵀ of the past, and rectification
        operations += 2 * numel * d  # the sample
        others = [other for other in full if other != d] + [d] * (full.count(d) - 1)
        if h.preconditioner == "kl":
            operations += 2 * numel * sum(others)
        if h.state_dtype == "int4":
            cubes += _WRITE_CUBES + (2 if h.preconditioner == "shampoo" else 3) * _READ_CUBES
            if h.preconditioner == "kl":
                operations += _READ_CUBES * sum(other**3 for other in others)
    return operations + cubes * d**3
