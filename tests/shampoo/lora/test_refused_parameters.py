"""Parameters that cannot be stepped are refused by what is wrong with them, and nothing moves."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from shampoo import LoraRite


def _with_gradients(*params: nn.Parameter) -> None:
    for param in params:
        param.grad = torch.ones_like(param)


def test_a_parameter_whose_elements_share_memory_is_refused() -> None:
    pair: list[Tensor] = [nn.Parameter(torch.ones(3, 1).expand(3, 4)), nn.Parameter(torch.zeros(5, 3))]
    with pytest.raises(ValueError, match=r"elements of parameter 0 share memory .* shape \(3, 4\)"):
        LoraRite(pair)


@pytest.mark.parametrize(("first", "second"), [((3, 0), (5, 3)), ((3, 4), (0, 3)), ((0, 4), (5, 0))])
def test_a_pair_without_elements_is_refused(first: tuple[int, int], second: tuple[int, int]) -> None:
    pair = [nn.Parameter(torch.zeros(first)), nn.Parameter(torch.zeros(second))]
    with pytest.raises(ValueError, match=r"parameters 0 and 1 are a pair with no elements, got .*: leave it out"):
        LoraRite(pair)


def test_parameters_that_share_memory_are_refused_in_one_group_and_in_two() -> None:
    A, B = nn.Parameter(torch.ones(3, 4)), nn.Parameter(torch.zeros(5, 3))
    head = nn.Parameter(B.data[1:])
    groups: list[dict[str, Any]] = [{"params": [A, B]}, {"params": [head], "paired": False}]
    with pytest.raises(ValueError, match=r"parameter 1 of group 0 .* and parameter 0 of group 1 .* share memory"):
        LoraRite(groups)
    groups = [{"params": [B, head], "paired": False}]
    with pytest.raises(ValueError, match=r"parameter 0 of group 0 .* and parameter 1 of group 0 .* share memory"):
        LoraRite(groups)


@pytest.mark.parametrize(("index", "shape"), [(0, (3, 8)), (1, (7, 3)), (2, (2, 3))])
def test_a_parameter_that_is_given_another_shape_is_refused_before_anything_moves(
    index: int, shape: tuple[int, int]
) -> None:
    A, B, head = nn.Parameter(torch.ones(3, 4)), nn.Parameter(torch.zeros(5, 3)), nn.Parameter(torch.ones(6))
    params = [A, B, head]
    groups: list[dict[str, Any]] = [{"params": [head], "paired": False}, {"params": [A, B]}]
    optimizer = LoraRite(groups)
    _with_gradients(*params)
    optimizer.step()
    params[index].data = torch.ones(shape)
    before = [param.detach().clone() for param in params]
    _with_gradients(*params)
    with pytest.raises(RuntimeError, match="it or its partner had another one when the optimizer made its state"):
        optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(before, params, strict=True))
