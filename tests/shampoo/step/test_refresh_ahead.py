"""Solving a step's refreshes together changes nothing but the time it takes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from shampoo import Shampoo
from shampoo.linalg.per_matrix import Call, per_matrix_together
from shampoo.step import refresh_ahead
from tests.support.shampoo.members import member
from tests.support.shampoo.settings import gradients_like, parameters, train

SHAPES = [(20, 16), (16, 24), (5, 9, 7), (11,), (8, 8)]


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of calls that were solved at once, each time."""
    sizes: list[int] = []

    def noted(calls: list[Call]) -> list[tuple[Tensor, ...]]:
        sizes.append(len(calls))
        return per_matrix_together(calls)

    monkeypatch.setattr(refresh_ahead, "per_matrix_together", noted)
    return sizes


def _trained(name: str, num_steps: int = 9) -> tuple[list[Tensor], list[Tensor]]:
    params = parameters(SHAPES, torch.float32)
    optimizer = Shampoo(params, **member(name, weight_decay=0.1, weight_decay_type="l2"))
    for step in range(num_steps):
        for index, (param, gradient) in enumerate(zip(params, gradients_like(params, step=step), strict=True)):
            param.grad = None if index == 1 and step < 3 else gradient  # a parameter with steps of its own
        optimizer.step()
    state = [value for param in params for value in optimizer.state[param].values() if isinstance(value, Tensor)]
    return [param.detach() for param in params], state


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize(
    "name",
    [
        "shampoo_adam",
        "shampoo_none",
        "shampoo_by_eigh64",
        "shampoo_by_coupled_newton",
        "shampoo_by_qr",
        "shampoo_diagonal",
        "shampoo_together",
        "soap",
        "soap_by_qr",
        "soap_one_sided",
    ],
)
def test_weights_and_state_are_those_of_solving_chunk_by_chunk(
    name: str, together: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = _trained(name)
    assert max(together) > 2
    together.clear()
    monkeypatch.setattr(refresh_ahead, "MAX_BYTES", 0)
    alone = _trained(name)
    assert together == []
    for found, expected in zip((*ahead[0], *ahead[1]), (*alone[0], *alone[1]), strict=True):
        assert torch.equal(found, expected)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("name", ["kl", "shampoo_int8", "shampoo_tolerant", "spectral", "adam"])
def test_what_depends_on_more_than_statistics_is_not_solved_ahead(name: str, together: list[int]) -> None:
    _trained(name)
    assert together == []


def test_a_step_that_refreshes_much_is_not_held_in_memory_at_once(
    together: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A hundredth of the memory, for sides of a tenth of those of large layers.
    monkeypatch.setattr(refresh_ahead, "MAX_BYTES", refresh_ahead.MAX_BYTES // 100)
    params = parameters([(110, 110)] * 2, torch.float32)
    optimizer = Shampoo(params, max_preconditioner_dim=110, precondition_frequency=1)
    train(optimizer, params, range(1))
    assert refresh_ahead.MAX_BYTES > 4 * 4 * 110**2  # four factors fit,
    assert together == [2]  # one call for each side
    together.clear()
    more = parameters([(110, 110)] * 5, torch.float32)
    train(Shampoo(more, max_preconditioner_dim=110, precondition_frequency=1), more, range(1))
    assert together == []  # and ten do not
