"""Rules on what a workload may say beside the protocol: blocks, parameter groups, tokens and counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from torch import nn

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
    """Each trained parameter is in exactly one group."""
    workload = subject.workload
    if not isinstance(workload, HasParameterGroups):
        raise NotChecked("it has none: all parameters are trained alike")
    model = subject.model()
    groups = list(workload.parameter_groups(model))
    if not all(isinstance(group, Mapping) and "params" in group for group in groups):
        raise Broken("a group has no 'params'", "Give dicts as a torch optimizer takes them")
    listed = [list(group["params"]) for group in groups]
    count = Counter(id(parameter) for group in listed for parameter in group)
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    for name, parameter in trained.items():
        if count[id(parameter)] != 1:
            times = "no group" if count[id(parameter)] == 0 else f"{count[id(parameter)]} groups"
            raise Broken(f"parameter {name} is in {times}", "Each trained parameter must be in exactly one")
    if len(count) > len(trained):
        raise Broken("a group has parameters that are frozen or not the model's", "List the trained ones of the model")
    return f"{len(groups)} groups with {len(trained)} parameters"


def check_tokens(subject: Subject) -> str:
    """`tokens_per_example` is a number of tokens."""
    workload = subject.workload
    if not isinstance(workload, HasTokens):
        raise NotChecked("it has no tokens_per_example")
    tokens = workload.tokens_per_example
    if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 1:
        raise Broken(f"tokens_per_example is {tokens!r:.80}", "Make it a property that gives an integer >= 1")
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
