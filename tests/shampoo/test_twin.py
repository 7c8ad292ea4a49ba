"""The readable twin of the optimizer is the optimizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shampoo import Shampoo
from tests.support.shampoo import twin
from tests.support.shampoo.settings import parameters, train

# None of their sides is merged with another or cut, where a factor may have 12.
SHAPES = [(12,), (7, 11), (9, 10, 11)]


@pytest.mark.parametrize(
    "changes",
    [
        {"precondition_frequency": 3},
        {"betas": (0.8, 0.95), "weight_decay": 0.1, "epsilon": 1e-3, "precondition_frequency": 1},
    ],
    ids=["defaults", "changed"],
)
def test_it_takes_the_steps_of_the_optimizer(changes: dict[str, Any]) -> None:
    params, others = parameters(SHAPES), parameters(SHAPES)
    optimizer = Shampoo(params, lr=0.01, max_preconditioner_dim=12, stagger_refresh=False, **changes)
    train(optimizer, params, range(8))
    train(twin.PlainShampoo(others, lr=0.01, **changes), others, range(8))
    for param, other, start in zip(params, others, parameters(SHAPES), strict=True):
        difference, moved = param.detach() - other.detach(), param.detach() - start.detach()
        # As against the reference in float64: the root of a null eigenvalue carries an error of about 1e-16/ε.
        assert difference.norm() < 1e-9 * moved.norm()


def test_it_stays_readable() -> None:
    assert len(Path(twin.__file__).read_text().splitlines()) <= 60
