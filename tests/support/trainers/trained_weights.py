"""Functions that rank processes run to write the weights of a model that they have trained together."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import torch
from torch import Tensor, nn

from shampoo import WeightAveraging
from tests.support.trainers.parallel.models import build
from tests.support.trainers.parallel.training import (
    WORKLOAD,
    batch_of,
    evaluate,
    optimizer_of,
    train_steps,
    trial_config,
)
from trainers.parallel.parallelise import parallelise
from trainers.ranks.context import process_group_context
from trainers.weights import put_weights, whole_weights


def train_and_put(model_name: str, mode: str, directory: Path, averages: bool) -> tuple[float, dict[str, Tensor]]:
    """The loss of one batch after a few steps, and the weights that this rank got; those of rank 0 are written."""
    context, config = process_group_context(), trial_config(mode, num_steps=4)
    parallel = parallelise(build(model_name), WORKLOAD, config, context)
    optimizer = optimizer_of("adamw", parallel.model)
    averaging = WeightAveraging(optimizer, "lawa") if averages else None
    train_steps(parallel, averaging or optimizer, config, range(config.num_steps), context, keep_all=False)
    with nullcontext() if averaging is None else averaging.averaged_weights():
        loss = evaluate(parallel, config, num_times=1)
        weights = whole_weights(parallel.model, keeps=context.rank == 0)
    if context.rank == 0:
        put_weights(directory, weights, metadata={"format": "pt"})
    return loss, weights


def loss_of(model: nn.Module) -> float:
    """The loss of the same batch by a model on one process."""
    model.eval()
    with torch.no_grad():
        return float(WORKLOAD.loss(model, batch_of(1000)))
