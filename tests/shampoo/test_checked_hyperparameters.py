import dataclasses
from typing import Any

import pytest
import torch

from shampoo import Shampoo
from shampoo.checked_hyperparameters import CheckedHyperparameters
from shampoo.hyperparameters import Hyperparameters


def _group(**values: Any) -> dict[str, Any]:
    return Shampoo([torch.zeros(3, 2, requires_grad=True)], **values).param_groups[0]


def test_of_a_group_whose_learning_rate_alone_is_another_one_all_else_stays() -> None:
    group, checked = _group(preconditioner="soap", betas=(0.8, 0.9)), CheckedHyperparameters()
    first = checked.of(0, group)
    assert checked.of(0, group) is first
    for lr in (0.5, 0, torch.tensor(0.25), 3e-4):
        group["lr"] = lr
        assert checked.of(0, group) == dataclasses.replace(first, lr=float(lr)) == Hyperparameters.of_group(group)


@pytest.mark.parametrize("lr", [-1e-3, float("nan"), "0.1", True, torch.ones(2)])
def test_a_learning_rate_is_checked_when_it_alone_changes(lr: object) -> None:
    group, checked = _group(), CheckedHyperparameters()
    checked.of(0, group)
    group["lr"] = lr
    for _ in range(2):
        with pytest.raises(ValueError, match="lr must be"):
            checked.of(0, group)
    del group["lr"]
    with pytest.raises(ValueError, match="lacks lr"):
        checked.of(0, group)


def test_what_can_change_and_be_the_same_object_is_looked_at_each_time() -> None:
    group, checked = _group(lr=torch.tensor(0.5)), CheckedHyperparameters()
    assert checked.of(0, group).lr == 0.5
    group["lr"].fill_(0.25)
    assert checked.of(0, group).lr == 0.25
    group["betas"] = [0.9, 0.99]
    assert checked.of(0, group).betas == (0.9, 0.99)
    group["betas"][1] = 0.9
    group["lr"] = 0.125
    h = checked.of(0, group)
    assert (h.lr, h.betas) == (0.125, (0.9, 0.9))


def test_a_structure_that_fits_fits_with_any_learning_rate_and_not_when_more_has_changed() -> None:
    group, checked = _group(), CheckedHyperparameters()
    built = checked.of(0, group).structure
    for lr in (1e-3, 2e-3):
        group["lr"] = lr
        assert checked.fitting(0, group, built).lr == lr
    group.update(lr=3e-3, max_preconditioner_dim=2)
    for _ in range(2):
        with pytest.raises(ValueError, match="max_preconditioner_dim changed from 1024 to 2"):
            checked.fitting(0, group, built)
    group.update(lr=4e-3)
    with pytest.raises(ValueError, match="max_preconditioner_dim changed from 1024 to 2"):
        checked.fitting(0, group, built)
