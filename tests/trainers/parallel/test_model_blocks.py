"""The modules that count as a model's blocks."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from torch import nn

from tests.support.trainers.parallel.models import TiedGPT
from trainers.config import InvalidConfig
from trainers.parallel.model_blocks import blocks_of
from trainers.workload.protocol import Workload


class Names:
    """A workload that names the modules at these paths."""

    def __init__(self, *paths: str) -> None:
        self.paths = paths

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        return [model.get_submodule(path) for path in self.paths]


def blocks(model: nn.Module, workload: object = None) -> list[nn.Module]:
    typed: Workload = workload  # type: ignore[assignment]  # no more is asked of it
    return blocks_of(typed, model)


def test_elements_of_module_lists_are_blocks() -> None:
    model = TiedGPT()
    assert blocks(model) == list(model.blocks)


def test_lists_within_lists_are_opened_and_those_within_blocks_are_not() -> None:
    inner = nn.Sequential(nn.Linear(2, 2))
    inner.add_module("heads", nn.ModuleList([nn.Linear(2, 2)]))
    first, second = nn.Linear(2, 2), nn.Linear(3, 3)
    model = nn.Module()
    model.stages = nn.ModuleList([nn.ModuleList([first, nn.ReLU()]), nn.ModuleDict({"only": second}), inner])
    assert blocks(model) == [first, second, inner]


def test_a_block_used_twice_counts_once() -> None:
    block = nn.Linear(2, 2)
    assert blocks(nn.Sequential(nn.ModuleList([block, block]))) == [block]


def test_without_lists_children_with_parameters_are_blocks() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    assert blocks(model) == [model[0], model[2]]


def test_a_workload_names_its_blocks() -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 2)), nn.Linear(2, 2))
    assert blocks(model, Names("0.0")) == [model[0][0]]  # type: ignore[index]


def test_blocks_inside_each_other_or_outside_the_model_are_refused() -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 2)), nn.Linear(2, 2))
    with pytest.raises(InvalidConfig, match=r"blocks\(\) gave 0.0, which is inside 0"):
        blocks(model, Names("0", "0.0"))
    with pytest.raises(InvalidConfig, match=r"blocks\(\) gave Sequential, which is not inside the model"):
        blocks(model, Names(""))
