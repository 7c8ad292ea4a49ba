"""Low-rank adapters for the tests of `LoraRite`: pairs, a regression that trains them, and a small model of modules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

Pair: TypeAlias = tuple[Tensor, Tensor]
"""A (r, n) and B (m, r)."""


def pairs(*shapes: tuple[int, int, int], dtype: torch.dtype = torch.float64, zero: bool = True) -> list[Pair]:
    """Trained pairs of (m, n, r), each A random; with `zero` B = 0, as adapters begin."""
    generator = torch.Generator().manual_seed(7)
    made = []
    for m, n, r in shapes:
        A = torch.randn(r, n, generator=generator, dtype=torch.float64) / n**0.5
        B = torch.randn(m, r, generator=generator, dtype=torch.float64) / 3
        made.append((A.to(dtype).requires_grad_(), (B * (not zero)).to(dtype).requires_grad_()))
    return made


def flat(given: Sequence[Pair]) -> list[Tensor]:
    """A and B alternating."""
    return [factor for pair in given for factor in pair]


class Regression:
    """Least squares for the products of pairs, each on its own inputs, whose scales differ by a factor of ten; the best
    products have higher ranks than the pairs."""

    def __init__(self, given: Sequence[Pair], *, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self._data = []
        for A, B in given:
            m, n = len(B), A.shape[1]
            scales = torch.logspace(0, -1, n, dtype=torch.float64)
            inputs = torch.randn(64, n, generator=generator, dtype=torch.float64) * scales
            target = torch.randn(m, n, generator=generator, dtype=torch.float64)
            self._data.append((inputs.to(A.dtype), (inputs @ target.T).to(A.dtype)))

    def loss(self, given: Sequence[Pair]) -> Tensor:
        """Mean squared error, summed over the pairs."""
        losses = [
            (inputs @ A.T @ B.T - targets).square().mean()
            for (A, B), (inputs, targets) in zip(given, self._data, strict=True)
        ]
        return torch.stack(losses).sum()

    def train(
        self, given: Sequence[Pair], optimizer: Optimizer, num_steps: int, *, after: Callable[[], None] = lambda: None
    ) -> float:
        """The loss before the last of `num_steps` steps; `after` is called after each."""
        loss = torch.zeros(())
        for _ in range(num_steps):
            optimizer.zero_grad()
            loss = self.loss(given)
            loss.backward()
            optimizer.step()
            after()
        return loss.item()


class Adapted(nn.Module):
    """A frozen linear layer with an adapter, named as peft names it."""

    def __init__(self, num_inputs: int, num_outputs: int, rank: int) -> None:
        super().__init__()
        self.base_layer = nn.Linear(num_inputs, num_outputs).requires_grad_(False)
        self.lora_A = nn.ModuleDict({"default": nn.Linear(num_inputs, rank, bias=False)})
        self.lora_B = nn.ModuleDict({"default": nn.Linear(rank, num_outputs, bias=False)})
        nn.init.zeros_(self.lora_B["default"].weight)  # type: ignore[arg-type]  # a linear layer's weight

    def forward(self, inputs: Tensor) -> Tensor:
        adapted: Tensor = self.base_layer(inputs) + self.lora_B["default"](self.lora_A["default"](inputs))
        return adapted


def adapted_model() -> nn.Sequential:
    """Two adapters of different shapes, a norm, and a head."""
    torch.manual_seed(3)
    return nn.Sequential(Adapted(12, 10, 3), nn.Tanh(), Adapted(10, 10, 3), nn.LayerNorm(10), nn.Linear(10, 4))
