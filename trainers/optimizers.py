"""The optimizer of a trial's config, with its parameter groups."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from search_spaces.nearest import did_you_mean
from shampoo import LoraRite, Shampoo, WeightAveraging, lora_param_groups, param_groups
from shampoo.distributed.agreement import SHARING
from shampoo.hyperparameters import DEFAULTS, Hyperparameters
from trainers.config import FOR_ADAPTERS, AveragingConfig, InvalidConfig, OptimizerConfig, OptimizerName, TrialConfig
from trainers.peers.muon import MuonWithAdamW
from trainers.peers.soap import peer_soap
from trainers.workload.protocol import HasParameterGroups, Workload

_MAKERS: Mapping[OptimizerName, Callable[..., Optimizer]] = {
    "shampoo": Shampoo,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
    "muon": MuonWithAdamW,
    "soap-peer": peer_soap,
    "lora-rite": LoraRite,
}


def known_arguments(name: OptimizerName) -> tuple[str, ...]:
    """The keyword arguments that the optimizer's constructor takes, beside the parameters."""
    _, *arguments = inspect.signature(_MAKERS[name]).parameters.values()
    return tuple(one.name for one in arguments if one.kind is not inspect.Parameter.VAR_KEYWORD)


def trainable_parameters(model: nn.Module) -> list[nn.Parameter]:
    """Every parameter that is trained, once each: shared ones are not repeated, frozen ones left out."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def parameter_groups(workload: Workload, model: nn.Module, config: OptimizerConfig) -> list[dict[str, Any]]:
    """The groups that the workload trains its parameters in, each parameter once.

    If it does not say, they are one group; with Muon, which is for hidden matrices alone, those of
    `shampoo.param_groups`. LoRA-RITE, which steps pairs, has those of `shampoo.lora_param_groups` in any case.

    Raises:
        InvalidConfig: the optimizer is for low-rank adapters, and the model has none.
        ValueError: the workload's groups leave a trained parameter out, or hold one twice; the message names it.
    """
    if config.name in FOR_ADAPTERS:
        try:
            return lora_param_groups(model)
        except ValueError as error:
            raise InvalidConfig(
                "optimizer.name",
                f"{error}: got {config.name!r}, which is for low-rank adapters (the workload huggingface has them with "
                "its option lora_rank)",
            ) from error
    trained = trainable_parameters(model)
    if isinstance(workload, HasParameterGroups):
        given = workload.parameter_groups(model)
    elif config.name == "muon":
        given = param_groups(model)
    else:
        return [{"params": trained}]
    known = known_arguments(config.name)
    groups = [{name: value for name, value in group.items() if name == "params" or name in known} for group in given]
    groups = [{**group, "params": [p for p in group["params"] if p.requires_grad]} for group in groups]
    counts = Counter(id(parameter) for group in groups for parameter in group["params"])
    wrong = [
        name for name, parameter in model.named_parameters() if parameter.requires_grad and counts[id(parameter)] != 1
    ]
    if wrong or len(counts) != len(trained):
        told = ", ".join(wrong) if wrong else "parameters that the model does not have"
        raise ValueError(f"parameter_groups must hold each trained parameter of the model once; wrong: {told}")
    return [group for group in groups if group["params"]]


def build_optimizer(
    config: OptimizerConfig, parameters: Iterable[nn.Parameter] | Iterable[dict[str, Any]], *, num_ranks: int = 1
) -> Optimizer:
    """The optimizer of `parameters` (or parameter groups), with the arguments of the config.

    With one rank, those that say how ranks share the work are left out, as the mode of parallelism is: a trial of many
    ranks can go on on one.

    Raises:
        InvalidConfig: an argument is unknown (the message lists the known ones), or its value is refused.
    """
    known = known_arguments(config.name)
    for argument, value in config.arguments.items():
        if argument not in known:
            field = f"optimizer.arguments.{argument}"
            raise InvalidConfig(
                field,
                f"unknown argument of {config.name} (known: {', '.join(known)}), got {value!r}"
                f"{did_you_mean(argument, known)}",
            )
    # JSON has no tuples, and the constructors document pairs such as `betas` as tuples.
    arguments = {name: tuple(value) if isinstance(value, list) else value for name, value in config.arguments.items()}
    if arguments.get("reduce_gradients"):
        raise InvalidConfig("optimizer.arguments.reduce_gradients", "has no effect: ddp averages gradients, got true")
    defaults = inspect.signature(_MAKERS[config.name]).parameters
    for name, given in arguments.items():
        default = defaults[name].default
        if isinstance(default, tuple) and isinstance(given, tuple) and len(given) != len(default):
            raise InvalidConfig(f"optimizer.arguments.{name}", f"must have {len(default)} elements, got {list(given)}")
    try:
        if num_ranks == 1 and config.name == "shampoo":
            Hyperparameters.of_group({**DEFAULTS, **arguments})
            arguments = {name: value for name, value in arguments.items() if name not in SHARING}
        return _MAKERS[config.name](parameters, **arguments)
    except (TypeError, ValueError, LookupError) as error:
        raise InvalidConfig("optimizer.arguments", f"refused by {config.name}: {error}; got {arguments!r}") from error


def build_trial_optimizer(config: TrialConfig, groups: Sequence[dict[str, Any]], *, num_ranks: int) -> Optimizer:
    """A trial's optimizer before its first step; with averaging, the `WeightAveraging` around it.

    Args:
        groups: `parameter_groups` of the workload and its model.

    Raises:
        InvalidConfig: the optimizer or the averaging refuses its arguments.
    """
    return _averaged(build_optimizer(config.optimizer, groups, num_ranks=num_ranks), config.averaging)


def _averaged(optimizer: Optimizer, config: AveragingConfig | None) -> Optimizer:
    if config is None:
        return optimizer
    try:
        return WeightAveraging(optimizer, config.method, **config.arguments)  # type: ignore[arg-type]  # checked there
    except (TypeError, ValueError) as error:
        raise InvalidConfig(
            "averaging", f"refused: {error}; got {config.method!r}, {dict(config.arguments)}"
        ) from error
