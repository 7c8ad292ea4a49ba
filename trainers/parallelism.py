"""From a model and a trial's config to the model that its ranks train together."""

from __future__ import annotations

from torch import nn

from trainers.config import InvalidConfig, TrialConfig
from trainers.distributed import RankContext
from trainers.parallel_model import ParallelModel
from trainers.replication import ReplicatedModel
from trainers.workload import Workload

__all__ = ["ParallelModel", "parallelise"]


def parallelise(model: nn.Module, workload: Workload, config: TrialConfig, context: RankContext) -> ParallelModel:
    """Shares `model`, which is on the context's device, between the ranks as the config says. All ranks start from
    rank 0's parameters. Call it before the optimizer is built, which gets the parameters of the result's `model`.

    Raises:
        InvalidConfig: the config does not fit the model or the world size; the message names the field.
    """
    if config.parallelism.mode != "ddp" and context.world_size > 1:
        raise InvalidConfig("parallelism.mode", f"{config.parallelism.mode} is not there yet")
    return ReplicatedModel(model, context)
