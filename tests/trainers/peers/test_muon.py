"""Muon with AdamW as one optimizer: what each gets, and that it steps as the two apart."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from shampoo import param_groups
from tests.support.trainers.trials import small_trial
from trainers.memory.prediction import needs_of
from trainers.peers.muon import MuonWithAdamW


def small_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(7, 6), nn.Flatten(), nn.Linear(12, 5), nn.LayerNorm(5), nn.Linear(5, 3))


def train(model: nn.Module, optimizers: list[torch.optim.Optimizer], num_steps: int = 4, seed: int = 1) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(num_steps):
        tokens = torch.randint(0, 7, (8, 2), generator=generator)
        for optimizer in optimizers:
            optimizer.zero_grad()
        model(tokens).square().mean().backward()
        for optimizer in optimizers:
            optimizer.step()
    return [parameter.detach().clone() for parameter in model.parameters()]


def test_it_steps_as_torchs_muon_and_adamw_apart() -> None:
    together, apart = small_model(), small_model()
    one = MuonWithAdamW(param_groups(together), lr=0.02, momentum=0.9, adamw_lr_ratio=0.5, weight_decay=0.1)
    hidden = apart.get_parameter("2.weight")
    rest = [p for p in apart.parameters() if p is not hidden]
    adamw = torch.optim.AdamW(
        [
            {"params": [p for p in rest if p.ndim == 2], "weight_decay": 0.1},
            {"params": [p for p in rest if p.ndim == 1], "weight_decay": 0.0},
        ],
        lr=0.01,
        betas=(0.9, 0.95),
    )
    muon = torch.optim.Muon([hidden], lr=0.02, momentum=0.9, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    assert all(map(torch.equal, train(together, [one]), train(apart, [muon, adamw])))


def test_a_loaded_state_goes_on_bit_for_bit() -> None:
    model = small_model()
    optimizer = MuonWithAdamW(param_groups(model), lr=0.02)
    train(model, [optimizer])
    other = copy.deepcopy(model)
    resumed = MuonWithAdamW(param_groups(other), lr=0.5)  # the state's own learning rate counts
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    expected = train(model, [optimizer], seed=2)
    assert all(map(torch.equal, expected, train(other, [resumed], seed=2)))


def test_a_copy_steps_its_own_parameters() -> None:
    model = small_model()
    optimizer = MuonWithAdamW(param_groups(model), lr=0.02)
    train(model, [optimizer])
    other, resumed = copy.deepcopy((model, optimizer))
    expected = train(model, [optimizer], seed=2)
    assert all(map(torch.equal, expected, train(other, [resumed], seed=2)))


def test_sides_of_one_and_kernels_are_no_matrices() -> None:
    shapes = [(4, 3), (1, 3), (4, 1), (4, 3, 2, 2), (5,), ()]
    parameters = [nn.Parameter(torch.zeros(shape)) for shape in shapes]
    groups = MuonWithAdamW(parameters).param_groups
    found = {group["preconditioner"]: [tuple(p.shape) for p in group["params"]] for group in groups}
    assert found == {"muon": [(4, 3)], "none": shapes[1:]}


@pytest.mark.parametrize("shape", [(3,), (3, 3)])
def test_one_kind_alone_trains_too(shape: tuple[int, ...]) -> None:
    parameter = nn.Parameter(torch.ones(shape))
    optimizer = MuonWithAdamW([parameter], lr=0.1)
    loss = optimizer.step(lambda: _backward(parameter))
    assert loss == parameter.numel()
    assert (parameter < 1).all()


def _backward(parameter: Tensor) -> float:
    loss = parameter.sum()
    loss.backward()
    return loss.item()


def test_a_groups_own_learning_rate_is_taken_as_it_is() -> None:
    matrix, vector = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2))
    optimizer = MuonWithAdamW([{"params": [matrix, vector], "lr": 0.25}], lr=0.1, adamw_lr_ratio=2.0)
    assert [group["lr"] for group in optimizer.param_groups] == [0.25, 0.25]
    optimizer = MuonWithAdamW([{"params": [matrix, vector]}], lr=0.1, adamw_lr_ratio=2.0)
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.2]


@pytest.mark.parametrize(
    "arguments",
    [{"lr": -1.0}, {"lr": "fast"}, {"adamw_lr_ratio": -1.0}, {"preconditioner": "kron"}, {"adjust_lr_fn": "x"}],
)
def test_an_impossible_argument_is_refused_with_its_value(arguments: dict[str, Any]) -> None:
    (value,) = arguments.values()
    with pytest.raises(ValueError, match=str(value)):
        MuonWithAdamW([nn.Parameter(torch.ones(2, 2))], **arguments)


def test_groups_come_with_the_constructor_alone() -> None:
    with pytest.raises(ValueError, match="no parameter"):
        MuonWithAdamW([])
    optimizer = MuonWithAdamW([nn.Parameter(torch.ones(2, 2))])
    with pytest.raises(ValueError, match="constructor"):
        optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2, 2))]})


def test_its_memory_is_predicted() -> None:
    needs = needs_of(small_trial("muon"))
    # One moment of each hidden matrix, two of all else; a step is counted beside each of those.
    hidden, rest = 64 * 32 + 32 * 16, 32 + 16 + 16 * 10 + 10
    assert needs.optimizer == 4 * (hidden + 2 * rest) + 4 * 4
