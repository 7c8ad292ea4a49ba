"""Rules on what a workload may say beside the protocol: blocks, parameter groups, tokens and counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from trainers.workload.description import ParameterGroup
from trainers.workload.parameter_groups import groups_by_rule
from trainers.workload.protocol import CountsEvents, HasBlocks, HasParameterGroups, HasTokens
from trainers.workload_check.outcome import Broken, NotChecked
from trainers.workload_check.subject import Subject, first_batches


def check_blocks(subject: Subject) -> str:
    """`blocks` names modules of the model, none inside another."""
    workload = subject.workload
    if not isinstance(workload, HasBlocks):
        raise NotChecked("it has none: the model's ModuleLists or children are taken")
    model = subject.model()
    blocks = list(workload.blocks(model))
    names = {id(module): name for name, module in model.named_modules()}
    if not blocks:
        raise Broken("blocks gives none", "Name at least one module, or leave the method out")
    foreign = [block for block in blocks if not isinstance(block, nn.Module) or id(block) not in names]
    if foreign:
        raise Broken(
            f"blocks gives {len(foreign)} that are not in the model", "Take them from the model that it is given"
        )
    for outer in blocks:
        inside = [inner for inner in blocks if inner is not outer and any(m is inner for m in outer.modules())]
        if inside or sum(block is outer for block in blocks) > 1:
            inner = names[id(inside[0])] if inside else names[id(outer)]
            raise Broken(f"blocks gives {inner} and {names[id(outer)]}, one in the other", "Name each part once")
    return f"{len(blocks)} blocks"


def check_parameter_groups(subject: Subject) -> str:
    """Each trained parameter is in exactly one group, and the description says which, with the same settings."""
    workload, described = subject.workload, subject.checked_description.parameter_groups
    if not isinstance(workload, HasParameterGroups):
        if described:
            raise Broken(
                "the description lists parameter groups, and the class makes none",
                "Give it the method parameter_groups, or leave them out of the description",
            )
        raise NotChecked("it has none: all parameters are trained alike")
    model = subject.model()
    groups = list(workload.parameter_groups(model))
    if not all(isinstance(group, Mapping) and "params" in group for group in groups):
        raise Broken("a group has no 'params'", "Give dicts as a torch optimizer takes them")
    groups = [{**group, "params": list(group["params"])} for group in groups]
    count = Counter(id(parameter) for group in groups for parameter in group["params"])
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    for name, parameter in trained.items():
        if count[id(parameter)] != 1:
            times = "no group" if count[id(parameter)] == 0 else f"{count[id(parameter)]} groups"
            raise Broken(f"parameter {name} is in {times}", "Each trained parameter must be in exactly one")
    if len(count) > len(trained):
        raise Broken("a group has parameters that are frozen or not the model's", "List the trained ones of the model")
    _check_described_groups(subject, model, groups, described)
    return f"{len(groups)} groups with {len(trained)} parameters"


def _check_described_groups(
    subject: Subject, model: nn.Module, groups: Sequence[Mapping[str, Any]], described: Sequence[ParameterGroup]
) -> None:
    """Checks that the description's groups are those that the class makes: a config is pasted with them."""
    made = _settings_by_parameter(groups)
    if not described and any(made.values()):
        raise Broken(
            "the description lacks the parameter groups",
            "List them in it, with their settings and rules: a config that is found with them is pasted with them",
        )
    if any(group.settings is None or not group.any_of for group in described):
        return  # as the class says, and not to be pasted
    defaults = {name: option.default for name, option in subject.checked_description.options.items()}
    told = _settings_by_parameter(groups_by_rule(model, described, options={**defaults, **subject.options}))
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and made[id(parameter)] != told[id(parameter)]:
            raise Broken(
                f"parameter {name} is trained with {made[id(parameter)] or 'no settings of its own'}, and by the "
                f"description with {told[id(parameter)] or 'none'}",
                "Make the groups from the description: trainers.workload.parameter_groups.groups_by_rule",
            )


def _settings_by_parameter(groups: Sequence[Mapping[str, Any]]) -> dict[int, dict[str, Any]]:
    """The settings that each parameter gets, by its id."""
    return {
        id(parameter): {name: value for name, value in group.items() if name != "params"}
        for group in groups
        for parameter in group["params"]
    }


def check_tokens(subject: Subject) -> str:
    """`tokens_per_example` is a number of tokens, and the one that the description tells, if it tells one."""
    workload = subject.workload
    if not isinstance(workload, HasTokens):
        raise NotChecked("it has no tokens_per_example")
    tokens = workload.tokens_per_example
    if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 1:
        raise Broken(f"tokens_per_example is {tokens!r:.80}", "Make it a property that gives an integer >= 1")
    description = subject.checked_description
    options = {name: option.default for name, option in description.options.items()} | dict(subject.options)
    described = None if description.tokens_per_example is None else description.tokens_per_example.with_options(options)
    if described is not None and described != tokens:
        raise Broken(
            f"tokens_per_example is {tokens}, and by the description {described}",
            "Make the description's number that of the class: jobs count their tokens by it",
        )
    return f"{tokens} tokens per example"


def check_counts(subject: Subject) -> str:
    """`counts` gives the same declared names from the beginning on, each with a number of events."""
    if not isinstance(subject.workload, CountsEvents):
        raise NotChecked("it has no counts")
    workload = subject.build()
    assert isinstance(workload, CountsEvents)
    before = workload.counts()
    _check_numbers(before)
    before = dict(before)
    first_batches(subject.batches(workload=workload), 2)
    after = workload.counts()
    _check_numbers(after)
    if before.keys() != after.keys():
        raise Broken(
            f"counts gives {sorted(before)} at first and {sorted(after)} later",
            "Give every name from the beginning, with 0: ranks add them up",
        )
    fallen = sorted(name for name in before if after[name] < before[name])
    if fallen:
        raise Broken(f"{', '.join(fallen)} falls", "Count from the building of the workload on")
    undeclared = sorted(after.keys() - subject.checked_description.metrics.keys())
    if undeclared:
        raise Broken(
            f"the description's metrics lack {', '.join(undeclared)}",
            "Add them there with their direction: the loop makes metrics of counts",
        )
    return ", ".join(sorted(after)) or "none"


def _check_numbers(counts: object) -> None:
    if not isinstance(counts, Mapping):
        raise Broken(f"counts gives a {type(counts).__name__}", "Give {name: number}")
    for name, value in counts.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise Broken(f"counts[{name!r}] is {value!r:.80}", "Give an integer >= 0")
