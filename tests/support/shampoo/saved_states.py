"""States of optimizers as a version saved them: `python -m tests.support.shampoo.saved_states NAME` writes
`tests/shampoo/state/versions/NAME.pt`; tests check that later versions continue from it.

Run it once for each released version, and never again for the same one: the tests need what earlier code has saved.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, TypedDict

import torch
from torch import Tensor, nn

from shampoo import Shampoo

VERSIONS = Path(__file__).parents[2] / "shampoo" / "state" / "versions"
CONFIGS: dict[str, dict[str, Any]] = {
    "shampoo": {"max_preconditioner_dim": 4, "momentum": 0.9, "weight_decay": 0.1},
    "shampoo-sgd": {"max_preconditioner_dim": 4, "grafting": "sgd", "weight_decay": 0.1},
    "shampoo-int8": {"max_preconditioner_dim": 4, "state_dtype": "int8"},
    "soap": {"max_preconditioner_dim": 4, "preconditioner": "soap"},
    "kl": {"max_preconditioner_dim": 4, "preconditioner": "kl"},
    "spectral": {"preconditioner": "spectral"},
    "none": {"preconditioner": "none"},
}
"""Arguments of the constructor by the name of a state."""
SHAPES = ((6, 7), (5,))
NUM_STEPS = 6


class Saved(TypedDict):
    """A state, and its weights."""

    state: dict[str, Any]
    weights: list[Tensor]


def new_optimizer(name: str) -> tuple[list[nn.Parameter], Shampoo]:
    """Parameters and their optimizer before the first step."""
    generator = torch.Generator().manual_seed(1)
    params = [nn.Parameter(torch.randn(shape, generator=generator)) for shape in SHAPES]
    return params, Shampoo(params, **CONFIGS[name])


def step(optimizer: Shampoo, params: list[nn.Parameter], number: int) -> None:
    """One step on the gradients of a noisy quadratic."""
    generator = torch.Generator().manual_seed(number)
    for param in params:
        param.grad = param.detach() + torch.randn(param.shape, generator=generator)
    optimizer.step()


def main() -> None:
    saved: dict[str, Saved] = {}
    for name in CONFIGS:
        params, optimizer = new_optimizer(name)
        for number in range(NUM_STEPS):
            step(optimizer, params, number)
        saved[name] = {"state": optimizer.state_dict(), "weights": [param.detach() for param in params]}
    VERSIONS.mkdir(exist_ok=True)
    torch.save(saved, VERSIONS / f"{sys.argv[1]}.pt")


if __name__ == "__main__":
    main()
