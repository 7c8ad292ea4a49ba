"""The guard against divergence: who is blamed, and when."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from tests.support.trainers.ranks import WarmRanks
from trainers.config import Diverged
from trainers.divergence import alarm, check_metrics, raise_diverged
from trainers.ranks.context import process_group_context, single_process_context


@pytest.mark.parametrize(
    ("loss", "expected"), [(1.0, 0), (5.0, 0), (5.1, 1), (-3.0, 0), (math.nan, 1), (math.inf, 1), (-math.inf, 1)]
)
def test_an_alarm_is_given_for_a_loss_above_the_bound_or_not_finite(loss: float, expected: int) -> None:
    assert alarm([torch.tensor(loss)], 5.0)[1] == expected


def test_one_part_of_a_batch_is_enough_for_an_alarm() -> None:
    assert alarm([torch.tensor(1.0), torch.tensor(7.0)], 5.0) == [4.0, 1.0]
    assert alarm([torch.tensor(1.0), torch.tensor(4.0)], 5.0) == [2.5, 0.0]


def diverging_model(*, weight: float | None = None, gradient: float | None = None) -> nn.Sequential:
    """Three layers with gradients; one value in the middle one is as given."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3))
    for index, parameter in enumerate(model.parameters()):
        parameter.grad = torch.full_like(parameter, float(index))
    middle = model[1].get_parameter("bias")
    if weight is not None:
        middle.data[1] = weight
    if gradient is not None:
        assert middle.grad is not None
        middle.grad[2] = gradient
    return model


@pytest.mark.parametrize(
    ("values", "parameter", "what"),
    [
        ({"weight": math.inf}, "1.bias", "holds values that are not finite"),
        ({"gradient": math.nan}, "1.bias", "has a gradient that is not finite"),
        ({"weight": math.nan, "gradient": math.nan}, "1.bias", "holds values that are not finite"),
        ({}, "2.weight", "has the largest gradient, of norm 12"),
    ],
)
def test_the_first_offending_parameter_is_named(values: dict[str, float], parameter: str, what: str) -> None:
    model = diverging_model(**values)
    with pytest.raises(
        Diverged, match=rf"^diverged at step 7: training loss inf, .* 1 of 1 ranks; {parameter} {what}$"
    ) as e:
        raise_diverged(7, math.inf, 1, max_loss=5.0, model=model, context=single_process_context())
    assert e.value.parameter == parameter


def test_parameters_without_gradients_or_any_at_all_blame_nobody() -> None:
    with pytest.raises(Diverged, match=r"on 1 of 1 ranks$") as e:
        raise_diverged(1, math.nan, 1, max_loss=5.0, model=nn.Linear(2, 2), context=single_process_context())
    assert e.value.parameter is None


def blame_of_two(where: int) -> str:
    """This rank's message where only rank `where` has a parameter that is not finite."""
    context = process_group_context()
    model = diverging_model(weight=math.inf if context.rank == where else None)
    try:
        raise_diverged(3, math.inf, 1, max_loss=5.0, model=model, context=context)
    except Diverged as diverged:
        return str(diverged)
    raise AssertionError("unreachable")


@pytest.mark.parametrize("where", [0, 1])
def test_all_ranks_blame_what_one_of_them_found(two_ranks: WarmRanks, where: int) -> None:
    texts = two_ranks.run(blame_of_two, where)
    assert texts[0] == texts[1]
    assert texts[0].endswith("1.bias holds values that are not finite")


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (math.nan, r"nan \(if it is undefined at times, .*\)"),
        (2e50, r"2e\+50, beyond 1e\+50"),
        (-1e300, r"-1e\+300, beyond 1e\+50"),
    ],
)
def test_a_metric_that_cannot_be_reckoned_with_is_named(value: float, told: str) -> None:
    check_metrics(4, {"validation_loss": 1e50})
    with pytest.raises(Diverged, match=rf"^diverged at step 4: validation_accuracy is {told}$"):
        check_metrics(4, {"validation_loss": 1.0, "validation_accuracy": value})
