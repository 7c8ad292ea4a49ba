from __future__ import annotations

import re
from typing import Any, cast

import pytest
import torch
from torch import nn

from shampoo import Shampoo
from trainers.config import InvalidConfig, OptimizerConfig, OptimizerName
from trainers.optimizers import build_optimizer, known_arguments, parameter_groups, trainable_parameters
from trainers.peers.muon import MuonWithAdamW
from trainers.workload.protocol import Workload
from trainers.workloads.registry import load


def optimizer_of(name: OptimizerName, **arguments: Any) -> torch.optim.Optimizer:
    return build_optimizer(OptimizerConfig(name, arguments), nn.Linear(3, 2).parameters())


@pytest.mark.parametrize(
    ("name", "expected"),
    [("shampoo", Shampoo), ("adamw", torch.optim.AdamW), ("sgd", torch.optim.SGD), ("muon", MuonWithAdamW)],
)
def test_the_arguments_reach_the_constructor(name: OptimizerName, expected: type) -> None:
    optimizer = optimizer_of(name, lr=0.25, weight_decay=0.125)
    assert type(optimizer) is expected
    assert optimizer.param_groups[0]["lr"] == 0.25
    assert optimizer.param_groups[0]["weight_decay"] == 0.125


@pytest.mark.parametrize("name", ["shampoo", "adamw"])
def test_a_pair_may_come_as_a_json_list(name: OptimizerName) -> None:
    assert optimizer_of(name, betas=[0.8, 0.9]).param_groups[0]["betas"] == (0.8, 0.9)


@pytest.mark.parametrize("name", ["shampoo", "adamw", "sgd", "muon"])
def test_an_unknown_argument_is_named_with_the_known_ones(name: OptimizerName) -> None:
    with pytest.raises(InvalidConfig, match=r"weight_decoy.*known: lr, .*weight_decay.*got 0\.1") as caught:
        optimizer_of(name, weight_decoy=0.1)
    assert caught.value.field == "optimizer.arguments.weight_decoy"
    assert "params" not in known_arguments(name)
    assert "self" not in known_arguments(name)


@pytest.mark.parametrize("name", ["shampoo", "adamw", "sgd", "muon"])
@pytest.mark.parametrize("value", [-1.0, "fast"])
def test_a_refused_value_is_an_invalid_config(name: OptimizerName, value: object) -> None:
    with pytest.raises(InvalidConfig, match=r"^optimizer\.arguments: .*lr"):
        optimizer_of(name, lr=value)


@pytest.mark.parametrize("name", ["shampoo", "adamw", "muon", "soap-peer", "lora-rite"])
@pytest.mark.parametrize("value", [[], [0.9], [0.9, 0.9, 0.9]])
def test_a_pair_of_another_length_is_refused_by_name(name: OptimizerName, value: list[float]) -> None:
    with pytest.raises(InvalidConfig, match=f"must have 2 elements, got {re.escape(str(value))}") as caught:
        optimizer_of(name, betas=value)
    assert caught.value.field == "optimizer.arguments.betas"


def test_an_object_in_place_of_a_pair_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"^optimizer\.arguments: refused by adamw: .*'first'"):
        optimizer_of("adamw", betas={"first": 0.9})


def test_how_ranks_share_the_work_does_not_matter_to_one() -> None:
    for sharing in ({"distributed": "local"}, {"communication_dtype": "bfloat16"}, {"distributed": "lossless"}):
        optimizer = optimizer_of("shampoo", **sharing)
        assert optimizer.param_groups[0]["distributed"] == "auto"
    with pytest.raises(InvalidConfig, match=r"^optimizer\.arguments: .*communication_dtype.*'float8'"):
        optimizer_of("shampoo", communication_dtype="float8")


def test_gradients_that_are_averaged_already_are_not_reduced_again() -> None:
    with pytest.raises(InvalidConfig) as caught:
        optimizer_of("shampoo", distributed="lossless", reduce_gradients=True)
    assert caught.value.field == "optimizer.arguments.reduce_gradients"


def test_the_parameters_are_not_an_argument() -> None:
    with pytest.raises(InvalidConfig, match="unknown argument"):
        optimizer_of("adamw", params=[])


def test_each_trained_parameter_is_owned_once() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    model[2].bias.requires_grad_(False)
    parameters = trainable_parameters(model)
    expected = [model[0].weight, model[0].bias, model[1].bias, model[2].weight]
    assert [id(parameter) for parameter in parameters] == [id(parameter) for parameter in expected]


@pytest.mark.parametrize(
    ("num_layers", "told"),
    [(2, r"wrong: 2\.weight, 2\.bias"), (4, "wrong: parameters that the model does not have")],
)
def test_groups_that_do_not_hold_each_trained_parameter_once_are_told(num_layers: int, told: str) -> None:
    layers = [nn.Linear(4, 4) for _ in range(4)]

    class Grouping:
        def parameter_groups(self, model: nn.Module) -> list[dict[str, Any]]:
            return [{"params": [p for layer in layers[:num_layers] for p in layer.parameters()]}]

    config, grouping = OptimizerConfig("adamw", {"lr": 0.01}), cast("Workload", Grouping())
    with pytest.raises(ValueError, match=f"must hold each trained parameter of the model once; {told}$"):
        parameter_groups(grouping, nn.Sequential(*layers[:3]), config)


def test_muon_leaves_the_head_and_the_biases_of_a_workload_without_groups_to_adamw() -> None:
    workload = load("digits-mlp", {"hidden_sizes": [8, 4]})
    model = workload.build_model()
    config = OptimizerConfig("muon", {"lr": 0.01})
    optimizer = build_optimizer(config, parameter_groups(workload, model, config))
    shapes = {
        group["preconditioner"]: sorted(
            tuple(p.shape) for g in optimizer.param_groups for p in g["params"] if g is group
        )
        for group in optimizer.param_groups[:2]
    }
    assert shapes == {"muon": [(4, 8), (8, 64)], "none": [(10, 4)]}
