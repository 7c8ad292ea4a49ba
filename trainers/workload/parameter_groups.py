"""Groups of a model's parameters, made from the rules of a workload's description."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from trainers.workload.description import ParameterGroup, ParameterRule


def groups_by_rule(
    model: nn.Module, groups: Sequence[ParameterGroup], *, options: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Groups as a torch optimizer takes them, each trained parameter once: first those of which no rule holds, then
    the described ones. A group may be empty.

    Rules look at names, classes and dimensions, which are the same in a model that is sharded or wrapped.

    Args:
        groups: the description's groups; with settings and rules all of them.
        options: the workload's options.
    """
    of_group: list[list[nn.Parameter]] = [[] for _ in groups]
    rest: list[nn.Parameter] = []
    owned = [[_owned(model, rule) for rule in group.any_of] for group in groups]
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        for group, owned_by_rule, chosen in zip(groups, owned, of_group, strict=True):
            pairs = zip(group.any_of, owned_by_rule, strict=True)
            if any(_holds(rule, name, parameter, ids) for rule, ids in pairs):
                chosen.append(parameter)
                break
        else:
            rest.append(parameter)
    described = [
        {"params": chosen, **(group.settings_with(options) or {})}
        for group, chosen in zip(groups, of_group, strict=True)
    ]
    return [{"params": rest}, *described]


def _owned(model: nn.Module, rule: ParameterRule) -> set[int]:
    """The ids of parameters in the modules that a rule speaks of."""
    modules: list[nn.Module] = []
    if rule.module_types:
        classes = tuple(getattr(nn, name) for name in rule.module_types)
        modules += [module for module in model.modules() if isinstance(module, classes)]
    if rule.of_output_embeddings:
        output = getattr(model, "get_output_embeddings", lambda: None)()
        modules += [] if output is None else [output]
    return {id(parameter) for module in modules for parameter in module.parameters()}


def _holds(rule: ParameterRule, name: str, parameter: nn.Parameter, owned: set[int]) -> bool:
    return (
        (not rule.name_parts or not set(rule.name_parts).isdisjoint(name.split(".")))
        and (not (rule.module_types or rule.of_output_embeddings) or id(parameter) in owned)
        and (rule.min_dims is None or parameter.ndim >= rule.min_dims)
        and (rule.max_dims is None or parameter.ndim <= rule.max_dims)
    )
