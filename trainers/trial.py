"""A trial in training, built from its config: all that its steps change, and a checkpoint holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from shampoo import Shampoo, WeightAveraging
from trainers.checkpoints import load_optimizer_state, optimizer_state, optimizer_template
from trainers.config import InvalidConfig, TrialConfig
from trainers.identity.trial import identity_of
from trainers.optimizers import build_trial_optimizer, parameter_groups
from trainers.parallel.parallelise import ParallelModel, parallelise
from trainers.precision import MixedPrecision
from trainers.ranks.context import RankContext
from trainers.workload.protocol import Workload


@dataclass(frozen=True, slots=True)
class RunningTrial:
    """One rank's part of a trial in training."""

    parallel: ParallelModel
    optimizer: Optimizer
    """The optimizer; with averaging, the `WeightAveraging` around it."""
    precision: MixedPrecision
    frozen: Sequence[nn.Parameter]
    """The parameters that were frozen when the optimizer was built, which does not have them."""

    def require_frozen(self) -> None:
        """Checks that parameters without a place in the optimizer are still frozen: unfrozen, they would never move.

        Raises:
            ValueError: one is not; the message names it.
        """
        if not any(parameter.requires_grad for parameter in self.frozen):
            return
        late = {id(parameter) for parameter in self.frozen if parameter.requires_grad}
        name, *others = [name for name, one in self.parallel.model.named_parameters() if id(one) in late]
        more = f" and {len(others)} more" if others else ""
        raise ValueError(
            f"parameter {name}{more} had been frozen when the optimizer was built: with a gradient now, it would still "
            "never be trained. Let build_model leave it unfrozen, and until it is to be trained, use x.detach() + 0 * "
            "x in place of the output x of its part"
        )

    def evaluated_weights(self) -> AbstractContextManager[None]:
        """The parameters hold the weights that are evaluated inside: the averaged ones, if there are."""
        if isinstance(self.optimizer, WeightAveraging):
            return self.optimizer.averaged_weights()
        return nullcontext()

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next steps depend on, but for the data and random numbers, which follow from the step."""
        return {**self._other_state(), "optimizer": optimizer_state(self.optimizer)}

    def template(self) -> dict[str, Any]:
        """The layout of a checkpoint's state on this rank."""
        return {**self._other_state(), "optimizer": optimizer_template(self.optimizer)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over a `state_dict()`, laid out as the template, into a trial before its first step.

        Hyperparameters stay those of the config: a trial that begins from another one's checkpoint has its own.
        """
        own = [{name: x for name, x in group.items() if name != "params"} for group in self.optimizer.param_groups]
        self.parallel.model.load_state_dict(state["model"])
        self.parallel.load_state_dict(state["parallel"])
        self.precision.load_state_dict(state["precision"])
        load_optimizer_state(self.optimizer, state["optimizer"])
        for group, hyperparameters in zip(self.optimizer.param_groups, own, strict=True):
            group.pop("initial_lr", None)  # which the schedule has put there
            group.update(hyperparameters)

    def _other_state(self) -> dict[str, Any]:
        return {
            "model": self.parallel.model.state_dict(),
            "parallel": self.parallel.state_dict(),
            "precision": self.precision.state_dict(),
        }

    def diagnostics(self) -> Mapping[str, float]:
        """The diagnostics of our own optimizer, as `optimizer_<name>`; nothing of others."""
        inner = self.optimizer.optimizer if isinstance(self.optimizer, WeightAveraging) else self.optimizer
        if not isinstance(inner, Shampoo):
            return {}
        return {f"optimizer_{name}": value for name, value in inner.diagnostics().as_metrics().items()}


def build_trial(config: TrialConfig, workload: Workload, context: RankContext) -> RunningTrial:
    """The trial before its first step, its model drawn from torch's global generator.

    Raises:
        InvalidConfig: the config does not fit the workload, the optimizer or the world size, or the workload builds no
            model of its options.
    """
    try:
        model = workload.build_model()
    except InvalidConfig:
        raise
    except ValueError as error:  # as of the constructor: some options are only looked at here, e.g. files of weights
        raise InvalidConfig("workload_options", f"refused by {config.workload}: {error}") from error
    if context.on_built is not None:
        context.on_built(identity_of(model, workload, config, device=context.device, world_size=context.world_size))
    model = model.to(context.device)
    parallel = parallelise(model, workload, config, context)
    groups = parameter_groups(workload, parallel.model, config.optimizer)
    optimizer = build_trial_optimizer(config, groups, num_ranks=context.world_size)
    precision = MixedPrecision(
        config.precision,
        device=context.device,
        scaler=torch.amp.GradScaler(torch.device(context.device).type, enabled=config.precision == "float16"),
    )
    frozen = [parameter for parameter in parallel.model.parameters() if not parameter.requires_grad]
    return RunningTrial(parallel, optimizer, precision, frozen)
