"""A description that somebody has written lists the groups of parameters that the class makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from trainers.workload.description import ParameterGroup, ParameterRule
from trainers.workload_check.child import outcome_of
from trainers.workload_check.outcome import RuleOutcome
from trainers.workload_check.rules import RULES
from trainers.workload_check.subject import Subject

[RULE] = [rule for rule in RULES if rule.name == "parameter groups"]
BIASES = ParameterGroup("biases", {"weight_decay": 0.0}, any_of=(ParameterRule(max_dims=1),))


def outcome(name: str, described: Sequence[ParameterGroup]) -> RuleOutcome:
    """Of a class of `broken_workloads` whose description has these groups."""
    subject = Subject(f"tests.support.trainers.broken_workloads:{name}", {}, batch_size=12)
    subject.description = replace(subject.description, parameter_groups=tuple(described))
    return outcome_of(RULE, subject)


@pytest.mark.parametrize(
    ("name", "described", "status", "text"),
    [
        ("Extended", [BIASES], "ok", "2 groups"),
        ("Extended", [], "failed", "the description lacks the parameter groups"),
        ("Extended", [replace(BIASES, settings={"weight_decay": 0.1})], "failed", "parameter 0.bias is trained with"),
        (
            "Extended",
            [replace(BIASES, any_of=(ParameterRule(name_parts=("weight",)),))],
            "failed",
            "parameter 0.weight is trained with no settings of its own",
        ),
        ("Extended", [replace(BIASES, settings=None)], "ok", "2 groups"),
        ("Sound", [BIASES], "failed", "the class makes none"),
        ("Sound", [], "skipped", "all parameters are trained alike"),
    ],
)
def test_described_groups_are_those_of_the_class(
    name: str, described: list[ParameterGroup], status: str, text: str
) -> None:
    found = outcome(name, described)
    assert found.status == status
    assert text in found.text
