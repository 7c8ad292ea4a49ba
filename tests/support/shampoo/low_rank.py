"""Training on ranks whose gradients PowerSGD compresses, or in a single process; the ranks run these functions.

The task is to recognise handwritten digits with 80% of the pixels hidden, different ones each time. The remaining loss
is uncertainty, so it converges to a number far from zero, and 1% of it means something. The end of a training depends
on its seed by about 1%, so several networks are trained side by side, in hardly more than the time of one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from shampoo import Shampoo
from trainers.workloads.digits.digits import digits

RANK = 4
WIDTH = 32
NUM_NETWORKS = 6
NUM_WARMUP_STEPS = 40
BATCH_SIZE = 128
"""Batch size of each network, on all ranks together."""
SHARE_SEEN = 0.2
NUM_VALIDATION_MASKS = 8
"""The number of masks with which each validation image is hidden in turn."""
NUM_UNCOMPRESSED_PASSES = 2
"""The number of uncompressed passes with which DDP begins, because it rearranges its buckets after the first. The
optimizer does not see them."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of training, on one rank."""

    losses: list[float]
    """Final validation losses by network, in nats per image."""
    weights: Tensor
    are_finite: bool
    """True if weights and state are finite."""
    num_failed_refreshes: int
    factor_ranks: dict[int, list[int]]
    """The ranks of all full factors, by the number of gradients in them."""
    gradient_ranks: list[int]
    """The largest rank of the gradient matrices of each step."""
    num_sent: int
    """Elements sent to collectives in compressed passes, as counted by the hook."""
    num_whole: int
    """The same without compression."""


class Networks(nn.Module):
    """Networks that have nothing to do with each other."""

    def __init__(self) -> None:
        super().__init__()
        self.networks = nn.ModuleList(
            nn.Sequential(nn.Linear(64, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 10)) for _ in range(NUM_NETWORKS)
        )

    def forward(self, pixels: Tensor) -> Tensor:
        """Pixels (`NUM_NETWORKS`, b, 64) to logits (`NUM_NETWORKS`, b, 10)."""
        return torch.stack([network(x) for network, x in zip(self.networks, pixels, strict=True)])


def train(config: dict[str, Any], compression_rank: int | None, num_steps: int) -> Outcome:
    """Trains on whole batches, or with compression by DDP, each rank on its part of every batch.

    The learning rate rises, and falls by a cosine to 0.
    """
    torch.manual_seed(0)
    model = Networks()
    replica: nn.Module = model
    state = PowerSGDState(
        process_group=None,
        matrix_approximation_rank=1 if compression_rank is None else compression_rank,
        start_powerSGD_iter=NUM_UNCOMPRESSED_PASSES,
        min_compression_rate=1,
        use_error_feedback=True,
        warm_start=True,
        random_seed=0,
    )
    if compression_rank is not None:
        replica = DistributedDataParallel(model)
        replica.register_comm_hook(state, powerSGD_hook)
    optimizer = Shampoo(model.parameters(), **config)
    part, num_parts = (0, 1) if compression_rank is None else (dist.get_rank(), dist.get_world_size())
    factor_ranks, gradient_ranks = {}, []
    for step, (pixels, labels) in zip(
        range(-NUM_UNCOMPRESSED_PASSES, num_steps), _batches(part, num_parts), strict=False
    ):
        optimizer.zero_grad()
        torch.autograd.backward(_losses(replica(pixels), labels))
        if step < 0:
            continue
        optimizer.param_groups[0]["lr"] = config["lr"] * _schedule(step, num_steps)
        optimizer.step()
        if step in (0, 1, 3, 7):
            gradient_ranks.append(max(_rank(matrix.grad) for matrix in model.parameters() if matrix.ndim > 1))
            factor_ranks[step + 1] = [_rank(factor) for factor in factors(optimizer)]
    tensors = [*model.parameters(), *(x for s in optimizer.state.values() for x in s.values() if isinstance(x, Tensor))]
    return Outcome(
        losses=_validation_losses(model),
        weights=nn.utils.parameters_to_vector(model.parameters()).detach(),
        are_finite=all(bool(x.isfinite().all()) for x in tensors),
        num_failed_refreshes=optimizer.diagnostics().num_failed_refreshes,
        factor_ranks=factor_ranks,
        gradient_ranks=gradient_ranks,
        num_sent=state.total_numel_after_compression,
        num_whole=state.total_numel_before_compression,
    )


def factors(optimizer: Shampoo) -> list[Tensor]:
    """All full factors, symmetric."""
    found = []
    for state in optimizer.state.values():
        for name, value in state.items():
            if name.startswith("factor") and value.ndim > 1 and value.shape[-1] == value.shape[-2]:
                lower = value.reshape(-1, *value.shape[-2:]).tril()
                found.extend(lower + lower.mT - torch.diag_embed(lower.diagonal(dim1=-2, dim2=-1)))
    return found


def _rank(matrix: Tensor | None) -> int:
    """The rank above the rounding of float32, also for squared gradients."""
    assert matrix is not None
    return int(torch.linalg.matrix_rank(matrix.double(), rtol=1e-5))


def _schedule(step: int, num_steps: int) -> float:
    return min(1.0, (step + 1) / NUM_WARMUP_STEPS) * (1 + math.cos(math.pi * step / num_steps)) / 2


def _hidden(pixels: Tensor, generator: torch.Generator) -> Tensor:
    return pixels * (torch.rand(pixels.shape, generator=generator) < SHARE_SEEN)


def _batches(part: int, num_parts: int) -> Iterator[tuple[Tensor, Tensor]]:
    """One of equal parts of each batch: pixels (`NUM_NETWORKS`, b, 64) and labels (`NUM_NETWORKS`, b)."""
    generator = torch.Generator().manual_seed(1)
    images, labels = digits().train_images, digits().train_labels
    while True:
        chosen = torch.randint(len(images), (NUM_NETWORKS, BATCH_SIZE), generator=generator)
        seen = _hidden(images[chosen], generator)
        yield seen[:, part::num_parts], labels[chosen][:, part::num_parts]


def _losses(logits: Tensor, labels: Tensor) -> list[Tensor]:
    """By network."""
    return [functional.cross_entropy(x, y) for x, y in zip(logits, labels, strict=True)]


@torch.no_grad()
def _validation_losses(model: Networks) -> list[float]:
    generator = torch.Generator().manual_seed(2)
    images, labels = digits().validation_images, digits().validation_labels
    seen = _hidden(images.repeat(NUM_VALIDATION_MASKS, 1), generator)
    logits = model(seen.expand(NUM_NETWORKS, -1, -1))
    return [loss.item() for loss in _losses(logits, labels.repeat(NUM_NETWORKS, NUM_VALIDATION_MASKS))]
