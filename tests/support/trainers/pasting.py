"""Training with code that a user pastes, as a user would: on one rank, or with DDP on several."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from service.evidence.formats.snippet import trial_snippet
from service.evidence.recommend import pasteable
from trainers.checkpoints.random_state import seed_random
from trainers.config import TrialConfig
from trainers.ranks.context import RankContext, process_group_context, single_process_context
from trainers.stored_config import StoredConfig
from trainers.workload.batches import train_batches
from trainers.workloads.registry import describe, load


def snippet_of(config: TrialConfig) -> str:
    """The snippet of a trial."""
    return trial_snippet(
        pasteable(StoredConfig.of(config.to_json()), describe(config.workload).parameter_groups), header=["pasted"]
    )


def trained_alone(python: str, config: TrialConfig) -> dict[str, float]:
    """The metrics after the pasted code has trained the workload's model on the trial's batches."""
    return _metrics(_shares(python, config, single_process_context()))


def shares_of_ranks(python: str, config: TrialConfig) -> dict[str, tuple[float, float]]:
    """This rank's sums and weights of the metrics, after all ranks have trained with the pasted code and DDP."""
    return _shares(python, config, process_group_context())


def metrics_of_ranks(shares: list[dict[str, tuple[float, float]]]) -> dict[str, float]:
    """The metrics of the shares of all ranks."""
    return _metrics(
        {name: (sum(own[name][0] for own in shares), sum(own[name][1] for own in shares)) for name in shares[0]}
    )


def _metrics(shares: dict[str, tuple[float, float]]) -> dict[str, float]:
    return {name: total / weight for name, (total, weight) in shares.items()}


def _shares(python: str, config: TrialConfig, context: RankContext) -> dict[str, tuple[float, float]]:
    rank, world_size = context.rank, context.world_size
    workload = load(config.workload, config.workload_options)
    seed_random(config.seed)
    pasted: dict[str, Any] = {"model": workload.build_model()}
    exec(compile(python, "pasted", "exec"), pasted)
    model = pasted["model"]
    called = model if world_size == 1 else DistributedDataParallel(model)
    batches = train_batches(
        workload, batch_size=config.batch_size, seed=config.seed, rank=rank, world_size=world_size, start_step=0
    )
    model.train()
    for _ in range(config.num_steps):
        pasted["training_step"](workload.loss(called, next(batches)))
    model.eval()
    with torch.no_grad(), pasted["optimizer"].averaged_weights():
        shares = workload.evaluate(model, rank=rank, world_size=world_size, device="cpu")
    return {name: (float(total), float(weight)) for name, (total, weight) in shares.items()}
