"""Symmetric matrices whose eigenvalues and eigenvectors are known."""

from __future__ import annotations

import torch
from torch import Tensor


def with_eigenvalues(values: Tensor, num: int, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    """`num` float64 matrices with these eigenvalues, and their eigenvectors in the same order."""
    generator = torch.Generator().manual_seed(seed)
    Q, _ = torch.linalg.qr(torch.randn(num, len(values), len(values), generator=generator, dtype=torch.float64))
    A = (Q * values) @ Q.mT
    return (A + A.mT) / 2, Q


def second_differences(n: int) -> tuple[Tensor, Tensor, Tensor]:
    """The float64 matrix tridiag(−1, 2, −1), its eigenvalues 2 − 2 cos(πj/(n + 1)), descending, and sine vectors."""
    A = 2 * torch.eye(n, dtype=torch.float64)
    A -= torch.diag(torch.ones(n - 1, dtype=torch.float64), 1) + torch.diag(torch.ones(n - 1, dtype=torch.float64), -1)
    j = torch.arange(n, 0, -1, dtype=torch.float64)
    i = torch.arange(1, n + 1, dtype=torch.float64)
    V = torch.sin(torch.pi * i[:, None] * j / (n + 1)) * (2 / (n + 1)) ** 0.5
    return A, 2 - 2 * torch.cos(torch.pi * j / (n + 1)), V


def gradients_statistics(num: int, n: int, rank: int, *, seed: int = 0) -> Tensor:
    """`num` float32 matrices G Gᵀ of standard normal G (n, rank)."""
    G = torch.randn(num, n, rank, generator=torch.Generator().manual_seed(seed))
    return torch.bmm(G, G.mT)
