"""The check of workloads that alter their examples by chance: where they may, and what those are told that may not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests.support.trainers import broken_workloads
from tests.support.trainers.broken_workloads import Sound
from trainers.workload_check.child import outcome_of
from trainers.workload_check.outcome import RuleOutcome
from trainers.workload_check.rules import RULES
from trainers.workload_check.subject import Subject


class AugmentsInTheLoss(Sound):
    def loss(self, model: nn.Module, batch: Any) -> Any:
        inputs, targets = batch
        if model.training:
            inputs = inputs + 1e-3 * torch.randn_like(inputs)
        return super().loss(model, (inputs, targets))


def outcome(rule_name: str, reference: str) -> RuleOutcome:
    (rule,) = (rule for rule in RULES if rule.name == rule_name)
    return outcome_of(rule, Subject(reference, {}, batch_size=12))


@pytest.mark.parametrize("rule", [rule.name for rule in RULES if rule.name != "processes"])
def test_augmentation_in_the_loss_keeps_every_rule(rule: str) -> None:
    assert outcome(rule, f"{__name__}:AugmentsInTheLoss").status in ("ok", "skipped")


@pytest.mark.parametrize("rule", ["data order", "sharding", "start step"])
def test_augmentation_of_what_the_loop_asks_for_is_told_where_its_place_is(rule: str) -> None:
    found = outcome(rule, f"{broken_workloads.__name__}:AltersExamplesByChance")
    assert found.status == "failed"
    # It gives `batch` already, so to be told to do so would be of no use.
    assert found.text.endswith(
        ". Let what `batch` gives follow from its indices alone: the loop draws them. Augment in `loss`, where "
        "model.training is true; torch's global generator may be used there"
    )
