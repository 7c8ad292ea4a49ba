"""`shampoo.starting_values`: legal for every member and length, and better than the defaults where runs are short."""

from __future__ import annotations

import re
from typing import Any, get_args

import pytest
import torch
from torch import nn

from shampoo import Shampoo, starting_values
from shampoo.hyperparameters import DEFAULT_REFRESH_PERIOD, DEFAULTS, Preconditioner
from tests.support.cases import in_one_test
from tests.support.readmes import text


@in_one_test("member", get_args(Preconditioner))
def test_they_are_legal_and_come_to_the_defaults_in_long_runs(member: Preconditioner) -> None:
    params = [nn.Parameter(torch.zeros(3, 2))]
    previous = float("inf")
    for num_steps in (1, 60, 240, 960, 5_000, 100_000, 10**9):
        values = starting_values(num_steps, preconditioner=member)
        group = Shampoo(params, **values).param_groups[0]
        assert group["preconditioner"] == member
        assert DEFAULTS["lr"] <= group["lr"] <= previous
        previous = group["lr"]
    assert previous == DEFAULTS["lr"]
    assert values.get("precondition_frequency") in (None, DEFAULT_REFRESH_PERIOD[member])


@pytest.mark.parametrize(
    ("num_steps", "higher", "others"), [(8, 0.064, 0.016), (30, 0.064, 0.016), (60, 0.032, 0.016), (120, 0.011, 0.011)]
)
def test_kl_and_spectral_begin_higher_in_short_runs(num_steps: int, higher: float, others: float) -> None:
    for member in get_args(Preconditioner):
        lr = starting_values(num_steps, preconditioner=member)["lr"]
        assert lr == (higher if member in ("kl", "spectral") else others), member


def test_averages_are_those_of_the_manual() -> None:
    rows = re.findall(r'^\| `"(\w+)"` \|.*\| `(betas=.*)` \|$', text("shampoo/README.md"), re.MULTILINE)
    assert {name for name, _ in rows} == {"soap", "kl", "spectral"}
    for name, arguments in rows:
        values = starting_values(100, preconditioner=name)
        averages = [f"{key}={value}" for key, value in values.items() if key in ("betas", "beta3")]
        assert ", ".join(averages) == arguments


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_steps": 0}, "num_steps must be an integer >= 1, got 0"),
        ({"num_steps": 1.5}, "num_steps must be an integer >= 1, got 1.5"),
        ({"num_steps": 5, "preconditioner": "muon"}, "preconditioner must be one of .* got 'muon'"),
    ],
)
def test_what_is_not_legal_is_refused_with_its_value(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        starting_values(**arguments)
