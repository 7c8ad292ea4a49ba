"""Ranks that give an optimizer other parameters than one another, which it is to share among them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch.distributed as dist
from torch import nn

from shampoo import Shampoo
from tests.support.shampoo import sharded
from tests.support.trainers.ranks import WarmRanks

Ranks = dict[int, WarmRanks]


def _refusal(groups: list[list[nn.Parameter]]) -> str | None:
    """The refusal of these groups, each added by itself."""
    try:
        optimizer = Shampoo(groups[0], distributed="lossless")
        for group in groups[1:]:
            optimizer.add_param_group({"params": group})
    except ValueError as refusal:
        return str(refusal)
    return None


def _in_another_order() -> str | None:
    params = [nn.Parameter(x) for x in sharded.initial_weights()]
    if dist.get_rank() == 1:
        params[2], params[3] = params[3], params[2]
    return _refusal([params])


def _each_its_own() -> str | None:
    params = [nn.Parameter(x) for x in sharded.initial_weights()]
    return _refusal([params[dist.get_rank() :: 2]])  # as ZeroRedundancyOptimizer divides them


def _in_a_later_group() -> str | None:
    params = [nn.Parameter(x) for x in sharded.initial_weights()]
    return _refusal([params[:4], params[4:6] if dist.get_rank() == 0 else params[5:7]])


def _with_another_method() -> str | None:
    params = [nn.Parameter(x) for x in sharded.initial_weights()]
    try:
        Shampoo(params, distributed="lossless", preconditioner="shampoo" if dist.get_rank() == 0 else "soap")
    except ValueError as refusal:
        return str(refusal)
    return None


def test_ranks_with_parameters_in_another_order_are_refused(ranks: Ranks) -> None:
    for rank, message in enumerate(ranks[2].run(_in_another_order)):
        shape = (24, 10) if rank == 0 else (17, 9)
        assert message is not None
        assert message.startswith(
            "ranks [1] share other parameters than rank 0 (distributed='lossless'): "
            f"the 9 differ from number 2 on, of shape {shape} on this rank. Give the optimizer the same"
        )


def test_ranks_with_other_numbers_of_parameters_are_refused(ranks: Ranks) -> None:
    for message, count in zip(ranks[2].run(_each_its_own), (5, 4), strict=True):
        assert message is not None
        assert f"{count} on this rank, and [5, 4] on all of them, from rank 0 on" in message


@pytest.mark.parametrize("refused", [_in_a_later_group, _with_another_method])
def test_ranks_that_differ_otherwise_are_refused_together(ranks: Ranks, refused: Callable[[], str | None]) -> None:
    for message in ranks[2].run(refused):
        assert message is not None
        assert "ranks [1] share other parameters than rank 0" in message
