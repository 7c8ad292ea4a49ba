"""How far a factor's inverse root is off after many updates, by the way in which 4 bits an entry hold the factor.

    python -m tests.benchmarks.steps.stored_factors
    python -m tests.benchmarks.steps.stored_factors --sizes 64 --updates 400

A factor is averaged over gradients, A ← β·A + (1 − β)·GGᵀ, and stored and read between any two updates:

    eigenvectors   ours, `state_dtype="int4"`: eigenvectors as Householder vectors of 8 bits, eigenvalues in float32
    entries        the entries of the eigenvectors in 4 bits (4-bit Shampoo, 2405.18144, without its rectification)
    cholesky       4-bit Cholesky factors (2412.10663): C of A + 1e-6·I, lower triangular, its diagonal in float32
    feedback       those with the average of what storing has lost, in 4 bits too, in the upper triangle: D(C + E) is
                   stored, and E ← 0.95·E + 0.05·(C + E − D(C + E))
    triangle       a departure from both: C in 8 bits, in the place of both triangles

All take the same bytes for n(n − 1) entries, but `cholesky` half of them. The gradients have covariances with
eigenvalues spread evenly, on a logarithmic scale, over the condition number, in a random basis.

    error.F.N.C    ‖Â^(-1/4) − A^(-1/4)‖ / ‖A^(-1/4)‖ (Frobenius) of format F at size N and condition number C, both
                   damped by 1e-6 of the largest eigenvalue as our roots are; A is averaged in float64 and never stored
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from tests.benchmarks.report import Cell, report
from tests.support.shampoo.matrices import with_eigenvalues
from tests.support.shampoo.packed import through

BETA = 0.95
FEEDBACK_BETA = 0.95
DAMPING = 1e-6

Format = Callable[[Tensor], Tensor]
"""Stores an n×n matrix and gives what is read back; it may remember what was lost."""


def _eigenvectors(A: Tensor) -> Tensor:
    values, Q = (x.flip(-1) for x in torch.linalg.eigh(A))  # large eigenvalues first, as refreshes have them
    Q = through(Q[None], "int4", "orthogonal")[0].double()
    return torch.mm(Q * values.float().double(), Q.T)


def _entries(A: Tensor) -> Tensor:
    values, Q = torch.linalg.eigh(A)
    Q = through(Q[None], "int4")[0].double()
    return torch.mm(Q * values.float().double(), Q.T)


def _cholesky_factor(A: Tensor) -> tuple[Tensor, Tensor]:
    """Its part below the diagonal, and the diagonal."""
    C = torch.linalg.cholesky(A + DAMPING * torch.eye(len(A), dtype=A.dtype))
    return C.tril(-1), C.diag().float().double()


def _product(lower: Tensor, diagonal: Tensor) -> Tensor:
    C = lower + torch.diag(diagonal)
    return C @ C.T


def _in_4_bits(lower: Tensor) -> Tensor:
    return through(lower[None], "int4")[0].double()


def _cholesky(A: Tensor) -> Tensor:
    lower, diagonal = _cholesky_factor(A)
    return _product(_in_4_bits(lower), diagonal)


class _Feedback:
    """Remembers the average of what storing has lost."""

    def __init__(self) -> None:
        self._lost: Tensor | None = None

    def __call__(self, A: Tensor) -> Tensor:
        lower, diagonal = _cholesky_factor(A)
        lost = torch.zeros_like(lower) if self._lost is None else self._lost
        stored = _in_4_bits(lower + lost)
        self._lost = _in_4_bits(FEEDBACK_BETA * lost + (1 - FEEDBACK_BETA) * (lower + lost - stored))
        return _product(stored, diagonal)


def _triangle(A: Tensor) -> Tensor:
    lower, diagonal = _cholesky_factor(A)
    # The lower triangle of the symmetric matrix is all that 4 bits an entry hold of it, in 8 bits.
    read = through((lower + lower.T)[None], "int4", "symmetric")[0].double()
    return _product(read.tril(-1), diagonal)


FORMATS: Mapping[str, Callable[[], Format]] = {
    "eigenvectors": lambda: _eigenvectors,
    "entries": lambda: _entries,
    "cholesky": lambda: _cholesky,
    "feedback": _Feedback,
    "triangle": lambda: _triangle,
}


def inverse_root(A: Tensor) -> Tensor:
    """A^(-1/4), damped by a share of the largest eigenvalue; negative eigenvalues count as zero."""
    values, Q = torch.linalg.eigh(A)
    return torch.mm(Q * (values.clamp(min=0) + DAMPING * values[-1]) ** -0.25, Q.T)


def errors(size: int, condition: float, *, num_updates: int, seed: int) -> dict[str, float]:
    """Error of the root at the end, by format."""
    eigenvalues = torch.logspace(0, -math.log10(condition), size, dtype=torch.float64)
    covariance, _ = with_eigenvalues(eigenvalues, 1, seed=seed)
    half = torch.linalg.cholesky(covariance[0])
    generator = torch.Generator().manual_seed(seed)
    exact = torch.zeros(size, size, dtype=torch.float64)
    formats = {name: make() for name, make in FORMATS.items()}
    kept = dict.fromkeys(formats, exact)
    for _ in range(num_updates):
        G = half @ torch.randn(size, size, generator=generator, dtype=torch.float64)
        exact = BETA * exact + (1 - BETA) * G @ G.T
        kept = {name: formats[name](BETA * A + (1 - BETA) * G @ G.T) for name, A in kept.items()}
    expected = inverse_root(exact)
    return {name: ((inverse_root(A) - expected).norm() / expected.norm()).item() for name, A in kept.items()}


def main() -> None:
    """Prints the errors of all formats."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sizes", nargs="+", type=int, default=[64, 256])
    parser.add_argument("--conditions", nargs="+", type=float, default=[1e2, 1e4, 1e6])
    parser.add_argument("--updates", type=int, default=100, help="updates of the factor (default: 100)")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of which the median is given (default: 3)")
    parser.add_argument("--json", type=Path, help="also write the JSON object to this file")
    options = parser.parse_args()
    if min(*options.sizes, *options.conditions, options.updates, options.seeds) < 1:
        parser.error("--sizes, --conditions, --updates and --seeds must be at least 1")
    rows: list[list[Cell]] = []
    ratios: dict[str, float] = {}
    for size in options.sizes:
        for condition in options.conditions:
            by_seed = [errors(size, condition, num_updates=options.updates, seed=s) for s in range(options.seeds)]
            found = {name: statistics.median(one[name] for one in by_seed) for name in FORMATS}
            rows.append([size, f"{condition:.0e}", *found.values()])
            ratios.update({f"error.{name}.{size}.{condition:.0e}": error for name, error in found.items()})
    report(
        "stored_factors",
        columns=["size", "condition", *FORMATS],
        rows=rows,
        figures={"num_updates": options.updates},
        ratios=ratios,
        json_file=options.json,
    )


if __name__ == "__main__":
    main()
