"""Which values lie at the edge of their range."""

from __future__ import annotations

import pytest

from search_spaces import SearchSpace, preset, presets
from search_spaces.edges import EDGE_SHARE, Edge, edges
from search_spaces.parameters import Categorical, Float, Integer

SPACE = SearchSpace(
    "shampoo",
    (
        Categorical("preconditioner", ("shampoo", "soap")),
        Float("lr", 1e-4, 0.03, "log"),
        Float("betas[0]", 0.85, 0.99, "reverse_log"),
        Float("weight_decay", 0.0, 0.2),
        Float("schedule.warmup_fraction", 0.0, 0.3),
        Integer("precondition_frequency", 1, 20, "log"),
        Integer("max_preconditioner_dim", 128, 1024, when={"preconditioner": ("soap",)}),
        Float("workload.dropout", 0.0, 0.5),
    ),
)
MIDDLE = SPACE.defaults({"preconditioner": "soap"})


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, []),
        ({"lr": 0.0289}, [Edge("lr", 0.0289, 0.03, "upper")]),
        ({"lr": 0.02}, []),
        ({"lr": 1.05e-4}, [Edge("lr", 1.05e-4, 1e-4, "lower")]),
        ({"lr": 0.1}, [Edge("lr", 0.1, 0.03, "upper")]),
        ({"betas[0]": 0.9899}, [Edge("betas[0]", 0.9899, 0.99, "upper")]),
        ({"weight_decay": 0.0, "schedule.warmup_fraction": 0.0, "precondition_frequency": 1}, []),
        ({"weight_decay": 0.2}, [Edge("weight_decay", 0.2, 0.2, "upper")]),
        ({"precondition_frequency": 20}, [Edge("precondition_frequency", 20, 20, "upper")]),
        ({"precondition_frequency": 19}, [Edge("precondition_frequency", 19, 20, "upper")]),
        ({"precondition_frequency": 18}, []),
        ({"max_preconditioner_dim": 1024}, [Edge("max_preconditioner_dim", 1024, 1024, "upper")]),
        ({"max_preconditioner_dim": 1024, "preconditioner": "shampoo"}, []),
        ({"workload.dropout": 0.5}, [Edge("workload.dropout", 0.5, 0.5, "upper")]),
    ],
)
def test_values_by_a_bound_that_could_be_another_are_at_an_edge(
    values: dict[str, float | str], expected: list[Edge]
) -> None:
    assert edges(SPACE, {**MIDDLE, **values}) == expected


@pytest.mark.parametrize("name", presets())
def test_of_a_preset_both_ends_of_each_range_are_edges_or_no_value_lies_beyond(name: str) -> None:
    space = preset(name)
    for parameter in space.parameters:
        if isinstance(parameter, Categorical):
            continue
        values = {parameter.name: parameter.from_unit(1 - EDGE_SHARE / 4)}
        if not parameter.when:
            assert [edge.name for edge in edges(space, values)] == [parameter.name]
