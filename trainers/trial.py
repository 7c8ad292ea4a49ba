"""What a trial's steps change: model, optimizer, averages, precision and compression, built from its config."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch.optim import Optimizer

from shampoo import Shampoo, WeightAveraging
from trainers.config import AveragingConfig, InvalidConfig, TrialConfig
from trainers.distributed import RankContext
from trainers.optimizers import build_optimizer, parameter_groups
from trainers.parallelism import ParallelModel, parallelise
from trainers.precision import MixedPrecision
from trainers.workload import Workload


@dataclass(frozen=True, slots=True)
class Trial:
    """One rank's part of a trial in training."""

    parallel: ParallelModel
    optimizer: Optimizer
    """With averaging, the `WeightAveraging` around it."""
    precision: MixedPrecision

    def evaluated_weights(self) -> AbstractContextManager[None]:
        """The parameters hold the weights that are evaluated inside: the averaged ones, if there are."""
        if isinstance(self.optimizer, WeightAveraging):
            return self.optimizer.averaged_weights()
        return nullcontext()

    def diagnostics(self) -> Mapping[str, float]:
        """What our own optimizer knows of its health, as `optimizer_<name>`; nothing of others."""
        inner = self.optimizer.optimizer if isinstance(self.optimizer, WeightAveraging) else self.optimizer
        if not isinstance(inner, Shampoo):
            return {}
        return {f"optimizer_{name}": value for name, value in inner.diagnostics().as_metrics().items()}


def build_trial(config: TrialConfig, workload: Workload, context: RankContext) -> Trial:
    """The trial before its first step, its model drawn from torch's global generator.

    Raises:
        InvalidConfig: the config does not fit the workload, the optimizer or the world size.
    """
    model = workload.build_model().to(context.device)
    parallel = parallelise(model, workload, config, context)
    optimizer = build_optimizer(config.optimizer, parameter_groups(workload, parallel.model, config.optimizer))
    precision = MixedPrecision(
        config.precision,
        device=context.device,
        casts=not parallel.is_sharded,
        scaler=torch.amp.GradScaler(torch.device(context.device).type, enabled=config.precision == "float16"),
    )
    return Trial(parallel, _averaged(optimizer, config.averaging), precision)


def _averaged(optimizer: Optimizer, config: AveragingConfig | None) -> Optimizer:
    if config is None:
        return optimizer
    try:
        return WeightAveraging(optimizer, config.method, **config.arguments)  # type: ignore[arg-type]  # checked there
    except (TypeError, ValueError) as error:
        raise InvalidConfig(
            "averaging", f"refused: {error}; got {config.method!r}, {dict(config.arguments)}"
        ) from error
