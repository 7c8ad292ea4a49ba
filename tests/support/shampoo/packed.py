"""Matrices as low-precision state stores them, and random ones of each structure to store."""

from __future__ import annotations

import torch
from torch import Tensor

from shampoo.hyperparameters import StateDtype
from shampoo.state.quantization import (
    Structure,
    pack,
    packed_layout,
    unpack,
)


def storage(num: int, size: int, dtype: StateDtype, structure: Structure = "general") -> dict[str, Tensor]:
    layout = packed_layout(size, dtype, structure=structure)
    return {name: torch.zeros((num, *shape), dtype=kind) for name, (shape, kind) in layout.items()}


def packed(X: Tensor, dtype: StateDtype, structure: Structure = "general") -> dict[str, Tensor]:
    stored = storage(len(X), X.shape[-1], dtype, structure)
    # Earlier contents must not show.
    for x in stored.values():
        x.fill_(1)
    pack(X, stored, dtype, structure=structure)
    return stored


def through(X: Tensor, dtype: StateDtype, structure: Structure = "general") -> Tensor:
    return unpack(packed(X.float(), dtype, structure), X.shape[-1], dtype, structure=structure)


def matrices(num: int, size: int, structure: Structure, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(num, size, size, generator=generator)
    if structure == "orthogonal":
        basis: Tensor = torch.linalg.qr(X.double())[0]
        return basis.float()
    if structure == "symmetric":
        return X.tril(-1) + X.tril(-1).mT
    return X
