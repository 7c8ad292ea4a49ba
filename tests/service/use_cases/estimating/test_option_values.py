"""Which values of a workload's options a space searches, and with which trials each is tried."""

from __future__ import annotations

from typing import Any

from search_spaces import SearchSpace
from service.use_cases.estimating.option_values import OptionValue, argument_choices, option_values, place_of


def values_of(*parameters: dict[str, Any]) -> list[OptionValue]:
    space = SearchSpace.from_json({"optimizer": "adamw", "parameters": list(parameters)})
    return list(option_values(space))


def test_every_choice_and_both_ends_of_a_range_are_tried_with_the_defaults_and_with_each_value_of_other_options() -> (
    None
):
    lr = {"type": "float", "name": "lr", "low": 0.001, "high": 0.1, "scale": "log", "default": 0.01}
    depth = {"type": "integer", "name": "workload.depth", "low": 1, "high": 3, "default": 2}
    loss = {"type": "categorical", "name": "workload.dropout", "choices": [0.0, 0.5]}
    found = values_of(lr, depth, loss)
    assert [(value.field, value.name, value.value, value.is_inside) for value in found] == [
        ("parameters[1].low", "workload.depth", 1, False),
        ("parameters[1].high", "workload.depth", 3, False),
        ("parameters[1]", "workload.depth", 2, True),
        ("parameters[2].choices[0]", "workload.dropout", 0.0, False),
        ("parameters[2].choices[1]", "workload.dropout", 0.5, False),
    ]
    assert found[1].trials == (
        {"lr": 0.01, "workload.depth": 3, "workload.dropout": 0.0},
        {"lr": 0.01, "workload.depth": 3, "workload.dropout": 0.5},
    )
    assert found[4].trials == tuple(
        {"lr": 0.01, "workload.depth": depth, "workload.dropout": 0.5} for depth in (2, 1, 3)
    )
    assert values_of(lr) == []


def test_a_value_is_tried_with_several_others_changed_at_once() -> None:
    def choice(name: str, *choices: int) -> dict[str, Any]:
        return {"type": "categorical", "name": f"workload.{name}", "choices": choices}

    (*_, third) = values_of(choice("width", 128, 96), choice("heads", 4, 3), choice("groups", 1, 3))
    assert (third.name, third.value) == ("workload.groups", 3)
    assert {"workload.width": 96, "workload.heads": 3, "workload.groups": 3} in third.trials
    assert len(third.trials) == 4


def test_a_value_is_tried_under_its_condition() -> None:
    kind = {"type": "categorical", "name": "workload.kind", "choices": ["plain", "lora"]}
    rank = {"type": "categorical", "name": "workload.rank", "choices": [2, 4], "when": {"workload.kind": ["lora"]}}
    plain, lora, *ranks = values_of(kind, rank)
    assert plain.trials == ({"workload.kind": "plain"},)  # a rank has no part in it
    assert lora.trials == tuple({"workload.kind": "lora", "workload.rank": rank} for rank in (2, 4))
    assert [value.trials for value in ranks] == [({"workload.kind": "lora", "workload.rank": r},) for r in (2, 4)]


def test_each_choice_of_an_argument_is_tried_with_the_ends_of_what_else_is_searched_of_the_optimizer() -> None:
    momentum = {"type": "float", "name": "momentum", "low": 0.0, "high": 0.9, "default": 0.0}
    nesterov = {"type": "categorical", "name": "nesterov", "choices": [False, True]}
    depth = {"type": "integer", "name": "workload.depth", "low": 1, "high": 3}
    space = SearchSpace.from_json({"optimizer": "shampoo", "parameters": [momentum, nesterov, depth]})
    without, with_it = argument_choices(space)
    assert (without.field, with_it.field) == ("parameters[1].choices[0]", "parameters[1].choices[1]")
    assert with_it.trials[:2] == (
        {"momentum": 0.0, "nesterov": True, "workload.depth": 2},
        {"momentum": 0.9, "nesterov": True, "workload.depth": 2},
    )


def test_an_option_is_found_where_the_space_has_it() -> None:
    depth = {"type": "integer", "name": "workload.depth", "low": 1, "high": 3}
    space = SearchSpace.from_json({"optimizer": "adamw", "parameters": [depth], "fixed": {"workload.dropout": 0.5}})
    assert [place_of(space, option) for option in ("depth", "dropout", "width", "", None)] == [
        "parameters[0].default",
        "fixed.workload.dropout",
        None,
        None,
        None,
    ]
