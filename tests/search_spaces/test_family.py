"""The preset `family`, held against the presets that it is made of."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from search_spaces import FAMILY_PRESETS, SearchSpace, algoperf_points, preset
from shampoo.hyperparameters import Hyperparameters

FAMILY = preset("family")


@pytest.mark.parametrize(("choices", "own"), FAMILY_PRESETS.values(), ids=FAMILY_PRESETS)
def test_a_member_has_the_ranges_defaults_and_config_of_its_own_preset(
    choices: Mapping[str, str], own: SearchSpace
) -> None:
    active = [parameter for parameter in FAMILY.active(choices) if parameter.name not in choices]
    assert {p.name: (p.domain, p.default, p.reason) for p in active} == {
        p.name: (p.domain, p.default, p.reason) for p in own.parameters
    }
    values = own.sample(random.Random(0))
    ours, theirs = FAMILY.assign({**choices, **values}), own.assign(values)
    assert (ours.schedule, ours.training, ours.workload_options) == (theirs.schedule, {}, {})
    assert Hyperparameters(**ours.optimizer_arguments) == Hyperparameters(**theirs.optimizer_arguments)


def test_what_members_share_is_one_dimension() -> None:
    named = [FAMILY.parameters[indices[0]].name for indices in FAMILY.dimensions()]
    assert {name: named.count(name) for name in named if named.count(name) > 1} == {
        "lr": 2,  # of Adam's length and of SGD's
        "betas[0]": 2,
        "weight_decay": 2,
        "epsilon": 2,  # of Shampoo's roots and of KL's
    }


def test_the_members_defaults_come_first_each_once_then_the_other_step_length() -> None:
    starts = [(start["preconditioner"], start.get("grafting")) for start in FAMILY.branch_defaults()]
    assert starts == [("shampoo", "adam"), ("soap", None), ("kl", None), ("spectral", None), ("shampoo", "sgd")]
    assert [start["lr"] for start in FAMILY.branch_defaults()] == [
        FAMILY_PRESETS[name][1].defaults()["lr"] for name in ("shampoo", "soap", "kl", "spectral", "shampoo-sgd")
    ]


def test_the_points_of_the_algoperf_submission_are_shampoos() -> None:
    points = algoperf_points(FAMILY)
    assert [(point["preconditioner"], point["grafting"]) for point in points] == [
        ("shampoo", grafting) for grafting in ("adam", "adam", "adam", "sgd", "adam")
    ]
