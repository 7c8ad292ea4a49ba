"""Parameters that trials gave settings of their own: as a config to paste has them, and as Python that makes them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from pydantic import ConfigDict, JsonValue
from pydantic.dataclasses import dataclass

from search_spaces.optimizers import ARGUMENTS
from service.evidence.caveat_kinds import Caveat, CaveatKind
from service.inert import one_line
from trainers.config import FOR_ADAPTERS
from trainers.workload.description import ParameterGroup, ParameterRule


@dataclass(frozen=True, slots=True, config=ConfigDict(use_attribute_docstrings=True))
class OwnSettings:
    """Settings that some parameters got in place of the optimizer's arguments."""

    parameters: str
    """These parameters, in words."""
    settings: dict[str, JsonValue] | None
    """Arguments of the optimizer; None: only the workload's class knows them."""
    any_of: list[ParameterRule] = field(default_factory=list)
    """A parameter has the settings of the first entry of which a rule holds, and those of `config` if none has one.
    A rule holds if all that it gives does. Empty: only the workload's class knows which parameters these are."""

    @property
    def words(self) -> str:
        """Both in words."""
        if not self.settings:
            return self.parameters
        return f"{self.parameters}: {', '.join(f'{name}={value!r}' for name, value in self.settings.items())}"


def own_settings(
    groups: Sequence[ParameterGroup], *, optimizer: str, arguments: Mapping[str, Any], options: Mapping[str, Any]
) -> list[OwnSettings]:
    """Settings that a trial gave to some parameters and its config does not say.

    Where every group has rules, it is all groups or none, so that the same ones can be made again: none if they make no
    difference. To Shampoo they always do, which spreads the refreshes of each group over the steps, and to Muon, which
    without any has groups of its own.

    Args:
        groups: the groups of the workload's description.
        optimizer: its name; a setting that it has no argument for was left out.
        arguments: the config's arguments; a setting that they have, too, makes no difference.
        options: the workload's options.
    """
    if optimizer in FOR_ADAPTERS:  # has groups of its own in any case
        return []
    known = ARGUMENTS[optimizer]
    found: list[OwnSettings] = []
    differing: list[OwnSettings] = []
    for group in groups:
        given = group.settings_with(options)
        settings = None if given is None else {name: value for name, value in given.items() if name in known}
        one = OwnSettings(group.parameters, settings, list(group.any_of))
        found.append(one)
        different = {n: v for n, v in (settings or {}).items() if arguments.get(n, known[n].default) != v}
        if settings is None:
            differing.append(one)
        elif different:
            differing.append(OwnSettings(group.parameters, different, list(group.any_of)))
    if not is_makeable(found):
        return differing
    return found if differing or optimizer in ("shampoo", "muon") else []


def is_makeable(groups: Sequence[OwnSettings]) -> bool:
    """True if rules say which parameters every one of these groups has."""
    return all(one.any_of and one.settings is not None for one in groups)


def caveat(groups: Sequence[OwnSettings]) -> Caveat:
    """Says that the config does not train as it was measured, not even with its groups, and why."""
    told = "; ".join(one.words for one in groups)
    sentence = f"The trials gave some parameters settings of their own, which the config and the Python lack: {told}."
    return Caveat(CaveatKind.PARAMETER_GROUPS, sentence)


def python_of_groups(groups: Sequence[OwnSettings]) -> list[str]:
    """Lines of a Python function `parameter_groups(model)` that makes the groups of a trial, of whatever model.

    Args:
        groups: `is_makeable`; at least one.
    """
    rules = [rule for group in groups for rule in group.any_of]
    types = sorted({name for rule in rules for name in rule.module_types})
    lines = [
        "def parameter_groups(model):",
        '    """The parameters in the groups that they were trained in, each with its own settings."""',
        *(_NAMES_ARE_THE_WORKLOADS if any(rule.name_parts for rule in rules) else []),
        *(line for name in types for line in _parameters_of_type(name)),
        *(_PARAMETERS_OF_OUTPUT if any(rule.of_output_embeddings for rule in rules) else []),
        "    groups = [",
        '        {"params": []},',
        *(line for group in groups for line in _group(group)),
        "    ]",
        "    for name, parameter in model.named_parameters():",
        "        if not parameter.requires_grad:",
        "            continue",
    ]
    for index, group in enumerate(groups, start=1):
        condition = _any(group.any_of)
        lines += [
            f"        {'if' if index == 1 else 'elif'} {condition}:",
            f'            groups[{index}]["params"].append(parameter)',
        ]
    return [
        *lines,
        "        else:",
        '            groups[0]["params"].append(parameter)',
        '    return [group for group in groups if group["params"]]',
    ]


def needs_torch(groups: Sequence[OwnSettings]) -> bool:
    """True if the function of `python_of_groups` names classes of torch."""
    return any(rule.module_types for group in groups for rule in group.any_of)


def _parameters_of_type(name: str) -> list[str]:
    return [
        f"    modules = [module for module in model.modules() if isinstance(module, torch.nn.{name})]",
        f"    {_of_type(name)} = {{parameter for module in modules for parameter in module.parameters()}}",
    ]


_NAMES_ARE_THE_WORKLOADS = [
    "    # Names are those of the workload's model: your own model may have others in their place."
]
_PARAMETERS_OF_OUTPUT = [
    '    output = getattr(model, "get_output_embeddings", lambda: None)()',
    "    of_output = set() if output is None else set(output.parameters())",
]


def _of_type(name: str) -> str:
    return f"of_{name.lower()}"


def _group(group: OwnSettings) -> list[str]:
    entries = "".join(f', "{name}": {_literal(value)}' for name, value in (group.settings or {}).items())
    return [f"        # {one_line(group.parameters)}", f'        {{"params": []{entries}}},']


def _literal(value: JsonValue) -> str:
    if isinstance(value, str):
        return json.dumps(value)
    return repr(tuple(value)) if isinstance(value, list) else repr(value)


def _any(rules: Sequence[ParameterRule]) -> str:
    conditions = [_all(rule) for rule in rules]
    return conditions[0] if len(conditions) == 1 else " or ".join(map(_bracketed, conditions))


def _all(rule: ParameterRule) -> str:
    of_modules = [f"parameter in {_of_type(name)}" for name in rule.module_types]
    if rule.of_output_embeddings:
        of_modules.append("parameter in of_output")
    conditions = [_bracketed(" or ".join(of_modules)) if len(of_modules) > 1 else of_modules[0]] if of_modules else []
    if len(rule.name_parts) == 1:
        conditions.append(f'{json.dumps(rule.name_parts[0])} in name.split(".")')
    elif rule.name_parts:
        parts = ", ".join(map(json.dumps, rule.name_parts))
        conditions.append(f'not {{{parts}}}.isdisjoint(name.split("."))')
    if rule.min_dims is not None:
        conditions.append(f"parameter.ndim >= {rule.min_dims}")
    if rule.max_dims is not None:
        conditions.append(f"parameter.ndim <= {rule.max_dims}")
    return " and ".join(conditions)


def _bracketed(condition: str) -> str:
    return f"({condition})" if " and " in condition or " or " in condition else condition
