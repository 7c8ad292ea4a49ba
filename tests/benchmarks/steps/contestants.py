"""Contestants: optimizers with parameters and gradients of their own, told before each step whether it refreshes.

Here ours and `torch.optim.AdamW(fused=True)`; the other packages are in `peers`.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from shampoo import Shampoo
from shampoo.hyperparameters import unused
from tests.benchmarks.steps.formulas import num_elements
from tests.benchmarks.steps.model_shapes import Shapes

NEVER = 1_000_000
"""A refresh period that no run reaches the end of."""

LEARNING_RATE = 1e-3
WEIGHT_DECAY = 1e-4
BETAS = (0.9, 0.999)

_SHIFTS = 64
_SHIFT = 997
_NUM_COPIES = 5


class GradientSource:
    """Another random gradient at every step for any number of parameters, at the cost of a copy.

    Step t sees one long normal vector from another place on. Rows of a matrix are scaled over two decades, so that its
    factors are about as unevenly conditioned as in training: eigendecompositions and iterations take as long as there.
    """

    def __init__(self, shapes: Shapes, device: str) -> None:
        self._values = torch.randn(num_elements(shapes) + _SHIFTS * _SHIFT, device=device) * 1e-2

    def write(self, gradients: Sequence[Tensor], step: int) -> None:
        """Fills the gradients of one optimizer."""
        start = step % _SHIFTS * _SHIFT
        for gradient in gradients:
            values = self._values[start : start + gradient.numel()].view(gradient.shape)
            start += gradient.numel()
            if gradient.dim() > 1:
                scales = torch.logspace(0, -2, len(gradient), device=gradient.device)
                torch.mul(values, scales.view(-1, *(1 for _ in gradient.shape[1:])), out=gradient)
            else:
                gradient.copy_(values)


@dataclass(slots=True)
class Contestant:
    """An optimizer, or several that make up one step, on parameters that no other touches."""

    name: str
    params: list[Parameter]
    optimizers: Sequence[torch.optim.Optimizer]
    schedule: Callable[[bool], None] = lambda _refresh: None
    """Says whether the next step refreshes."""
    gradients: list[Tensor] = field(init=False)

    def __post_init__(self) -> None:
        self.gradients = [torch.empty_like(param) for param in self.params]

    def prepare(self, source: GradientSource, step: int, *, refresh: bool = False) -> None:
        """Gives the parameters their gradients for the next step, and says whether it refreshes."""
        # Some optimizers write to p.grad or take it away, so every step gets it anew.
        source.write(self.gradients, step)
        for param, gradient in zip(self.params, self.gradients, strict=True):
            param.grad = gradient
        self.schedule(refresh)

    def step(self) -> None:
        for optimizer in self.optimizers:
            optimizer.step()

    def milliseconds(self, source: GradientSource, step: int, *, refresh: bool = False) -> float:
        """The time of one step."""
        self.prepare(source, step, refresh=refresh)
        return milliseconds(self.step, self.params[0].device)


def milliseconds(call: Callable[[], object], device: torch.device) -> float:
    """The time of a call, until the device has finished."""
    return queued_and_finished(call, device)[1]


def queued_and_finished(call: Callable[[], object], device: torch.device) -> tuple[float, float]:
    """The milliseconds until a call returns, and until the device has finished, which was idle before."""
    synchronize: Callable[[], object] = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    synchronize()
    start = time.perf_counter()
    call()
    returned = time.perf_counter()
    synchronize()
    return 1e3 * (returned - start), 1e3 * (time.perf_counter() - start)


def parameters(shapes: Shapes, device: str) -> list[Parameter]:
    return [Parameter(torch.full(shape, 1e-2, device=device)) for shape in shapes]


def ours(
    params: Sequence[Tensor] | Sequence[dict[str, Any]], *, block: int, preconditioner: str, **arguments: Any
) -> Shampoo:
    """Our optimizer, refreshing at every step from the first on until `set_period` says otherwise.

    Args:
        params: to be stepped, or groups of them.
        block: longest side of a block.
        preconditioner: member of the family; what it has no use for of this is left out.
        arguments: what is to differ from the defaults.
    """
    common: dict[str, Any] = {
        "lr": LEARNING_RATE,
        "betas": BETAS,
        "weight_decay": WEIGHT_DECAY,
        "max_preconditioner_dim": block,
        "precondition_frequency": 1,
        "start_preconditioning_step": 1,
    }
    useless = unused(preconditioner)
    used = {name: value for name, value in common.items() if name not in useless}
    return Shampoo(params, **{"preconditioner": preconditioner, **used, **arguments})


def set_period(optimizer: torch.optim.Optimizer, period: int) -> None:
    """Sets the steps from one refresh to the next; with staggering, each step then refreshes its share."""
    for group in optimizer.param_groups:
        if "precondition_frequency" not in unused(group.get("preconditioner", "shampoo")):
            group["precondition_frequency"] = period


def adamw(params: list[Parameter]) -> Contestant:
    """The contestant to which all are compared; fused, or fresh temporaries make its time swing fourfold on the CPU."""
    optimizer = torch.optim.AdamW(params, lr=LEARNING_RATE, betas=BETAS, weight_decay=WEIGHT_DECAY, fused=True)
    return Contestant("AdamW", params, (optimizer,))


def products_per_millisecond(size: int, device: torch.device) -> Callable[[], float]:
    """A clock for `torch.mm` of size×size matrices in float32: floating-point operations per millisecond."""
    A, product = torch.randn(size, size, device=device), torch.empty(size, size, device=device)
    operations = 2 * math.pow(size, 3)
    return lambda: operations / milliseconds(lambda: torch.mm(A, A, out=product), device)


def copied_bytes_per_millisecond(num_bytes: int, device: torch.device) -> float:
    """Median speed of copies of so many bytes, which are read and written: more of them than caches hold tell that of
    the memory."""
    source = torch.zeros(num_bytes, dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)
    times = [milliseconds(lambda: target.copy_(source), device) for _ in range(_NUM_COPIES)]
    return 2 * num_bytes / statistics.median(times)
