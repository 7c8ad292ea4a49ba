"""How often a step on an accelerator reads and writes memory, as counted on the meta device: a number for each member.

A pass is as many bytes as the weights have; products are left out. What is common to all: one for the norms of the
gradients, two for the gradients' way into blocks, five for decay and update of the weights.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests.benchmarks.steps.contestants import NEVER, ours, set_period
from tests.benchmarks.steps.counts import Scratch, count_step, take_step

COMMON = 1 + 2 + 5
# Adam's kernel reads gradient, moments and a tensor of zeros, and writes moments and step.
ADAM = 1 + 7
AVERAGE = 3
PASSES: dict[str, tuple[float, str, dict[str, Any]]] = {
    # The norms of the step and of Adam's.
    "shampoo": (COMMON + ADAM + 2, "shampoo", {}),
    "soap": (COMMON + ADAM, "soap", {}),
    # The gradient whitened for each side, along both with a norm for each, and the direction scaled along both.
    "kl": (COMMON + AVERAGE + 2 * 2 + (2 * 2 + 2) + 2 * 2, "kl", {}),
    # The largest entry, divided by it, the norm, divided by it.
    "spectral": (COMMON + AVERAGE + 2 + 2 + 1 + 2, "spectral", {}),
    # Before that the mean of a row, the difference, its norm, divided by it, and the row's largest entry.
    "standardized": (COMMON + AVERAGE + 7 + 1 + 2 + 1 + 2 + 1, "spectral", {"standardize_rows": True}),
    "without decay": (COMMON + ADAM + 2 - 2, "shampoo", {"weight_decay": 0.0}),
}


@pytest.mark.parametrize("name", PASSES)
def test_an_ordinary_step_takes_so_many_passes(name: str) -> None:
    expected, preconditioner, changes = PASSES[name]
    # Of a million elements and more each, and one whose blocks are strided.
    params = [nn.Parameter(torch.empty(1024, columns, device="meta")) for columns in (1024, 1024, 1024, 1024, 2048)]
    optimizer = ours(params, block=1024, preconditioner=preconditioner, **changes)

    def prepare() -> None:
        for param in params:
            param.grad = torch.empty_like(param)

    prepare()
    take_step(optimizer.step, device="meta")  # refreshes
    set_period(optimizer, NEVER)
    prepare()
    take_step(optimizer.step, device="meta")
    prepare()
    counts = count_step(optimizer.step, device="meta", scratch=Scratch())
    weights = sum(param.numel() * param.element_size() for param in params)
    # Numbers of which there is one for each row of a block, or for each block, are 1/500 of a pass and less.
    assert counts.bytes_moved / weights == pytest.approx(expected, abs=0.2)
