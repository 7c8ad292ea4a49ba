"""`shampoo.param_groups`: which parameter of a real model goes where, and that one optimizer trains them all."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from shampoo import Shampoo
from shampoo.hyperparameters import Preconditioner
from shampoo.param_groups import PLAIN_MODULES, param_groups


class LanguageModel(nn.Module):
    """A transformer with learned positions, and a head that may be tied to the embedding."""

    def __init__(self, *, tied: bool) -> None:
        super().__init__()
        self.tokens = nn.Embedding(50, 16)
        self.positions = nn.Embedding(12, 16)
        self.block = nn.TransformerEncoderLayer(16, 2, 24, dropout=0.0, batch_first=True)
        self.norm = nn.LayerNorm(16)
        self.temperature = nn.Parameter(torch.ones(()))
        self.head = nn.Linear(16, 50, bias=not tied)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.tokens(x) + self.positions(torch.arange(x.shape[1]))
        logits: Tensor = self.head(self.norm(self.block(hidden))) * self.temperature
        return logits.flatten(0, 1)


class Convnet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.depthwise = nn.Conv2d(8, 8, 3, groups=8, bias=False)
        self.scale = nn.Conv2d(8, 8, 1, groups=8)  # (8, 1, 1, 1): as good as a vector
        self.head = nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.scale(self.depthwise(self.norm(self.stem(x)).relu())).mean(dim=(2, 3)))
        return logits


class Recurrent(nn.Module):
    """With a head of one number: its weight has one side larger than 1."""

    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(30, 6)
        self.gru = nn.GRU(6, 5, num_layers=2)
        self.head = nn.Linear(5, 1)

    def forward(self, x: Tensor) -> Tensor:
        hidden, _ = self.gru(self.bag(x).unsqueeze(0))
        logits: Tensor = self.head(hidden[0])
        return torch.cat((logits, -logits), dim=1)


def _names(model: nn.Module, groups: list[dict[str, Any]]) -> dict[str, list[str]]:
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return {group["name"]: [names[id(parameter)] for parameter in group["params"]] for group in groups}


CASES: dict[str, tuple[Any, dict[str, list[str]]]] = {
    "language model": (
        lambda: LanguageModel(tied=False),
        {
            "matrices": [
                "block.self_attn.in_proj_weight",
                "block.self_attn.out_proj.weight",
                "block.linear1.weight",
                "block.linear2.weight",
            ],
            "plain matrices": ["tokens.weight", "positions.weight", "head.weight"],
            "vectors": [
                "temperature",
                "block.self_attn.in_proj_bias",
                "block.self_attn.out_proj.bias",
                "block.linear1.bias",
                "block.linear2.bias",
                "block.norm1.weight",
                "block.norm1.bias",
                "block.norm2.weight",
                "block.norm2.bias",
                "norm.weight",
                "norm.bias",
                "head.bias",
            ],
        },
    ),
    "convnet": (
        Convnet,
        {
            "matrices": ["stem.weight", "depthwise.weight"],
            "plain matrices": ["head.weight"],
            "vectors": ["stem.bias", "norm.weight", "norm.bias", "scale.weight", "scale.bias", "head.bias"],
        },
    ),
    "recurrent": (
        Recurrent,
        {
            "matrices": ["gru.weight_ih_l0", "gru.weight_hh_l0", "gru.weight_ih_l1", "gru.weight_hh_l1"],
            "plain matrices": ["bag.weight"],
            "vectors": [
                "gru.bias_ih_l0",
                "gru.bias_hh_l0",
                "gru.bias_ih_l1",
                "gru.bias_hh_l1",
                "head.weight",
                "head.bias",
            ],
        },
    ),
    "autoencoder": (
        lambda: nn.Sequential(nn.Linear(8, 3), nn.Tanh(), nn.Linear(3, 8)),
        {"matrices": ["0.weight"], "plain matrices": ["2.weight"], "vectors": ["0.bias", "2.bias"]},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_parameters_are_split_by_what_they_are_for(case: str) -> None:
    make, expected = CASES[case]
    model = make()
    found = _names(model, param_groups(model))
    assert list(found) == list(expected)
    assert {kind: sorted(names) for kind, names in found.items()} == {k: sorted(names) for k, names in expected.items()}


@pytest.mark.parametrize(
    "model",
    [
        *(make() for make, _ in CASES.values()),
        LanguageModel(tied=True),
        nn.Transformer(8, 2, 1, 1, 16, batch_first=True),
        nn.LSTM(4, 3, proj_size=2, bidirectional=True),
        nn.Bilinear(3, 4, 5),
        nn.MultiheadAttention(8, 2, kdim=4, vdim=6, add_bias_kv=True),
        nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)),
        nn.ModuleDict({"one": nn.PReLU(), "none": nn.ReLU(), "nested": nn.ModuleList([nn.Linear(2, 2)])}),
        nn.ConvTranspose3d(2, 4, 3),
    ],
    ids=lambda model: type(model).__name__,
)
@pytest.mark.parametrize("precondition_head", [False, True])
def test_every_parameter_is_in_one_group_once_whatever_the_module(model: nn.Module, precondition_head: bool) -> None:
    groups = param_groups(model, precondition_head=precondition_head)
    placed = [parameter for group in groups for parameter in group["params"]]
    assert sorted(map(id, placed)) == sorted(map(id, model.parameters()))
    assert all(group["params"] for group in groups)
    for group in groups:
        is_matrix = [sum(size > 1 for size in parameter.shape) >= 2 for parameter in group["params"]]
        assert set(is_matrix) == {group["name"] != "vectors"}
    assert len(Shampoo(groups).param_groups) == len(groups)


def test_a_tied_weight_comes_once_and_steps_plainly_even_where_the_head_is_wanted() -> None:
    model = LanguageModel(tied=True)
    for precondition_head in (False, True):
        groups = param_groups(model, precondition_head=precondition_head)
        assert [model.head.weight is parameter for group in groups for parameter in group["params"]].count(True) == 1
        assert _names(model, groups)["plain matrices"] == ["tokens.weight", "positions.weight"]


def test_frozen_parameters_are_left_out() -> None:
    model = LanguageModel(tied=False)
    model.tokens.requires_grad_(False)
    model.block.self_attn.in_proj_weight.requires_grad_(False)
    model.norm.requires_grad_(False)
    names = [name for group in _names(model, param_groups(model)).values() for name in group]
    assert sorted(names) == sorted(name for name, parameter in model.named_parameters() if parameter.requires_grad)
    assert not {"tokens.weight", "block.self_attn.in_proj_weight", "norm.weight", "norm.bias"} & set(names)


def test_groups_without_a_parameter_are_left_out() -> None:
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    assert [group["name"] for group in param_groups(model, precondition_head=True)] == ["matrices"]
    model[0].requires_grad_(False)
    assert [group["name"] for group in param_groups(model)] == ["plain matrices"]


# --- options ---


def test_a_small_head_may_be_preconditioned() -> None:
    model = CASES["autoencoder"][0]()
    assert _names(model, param_groups(model, precondition_head=True))["matrices"] == ["0.weight", "2.weight"]


def test_modules_that_step_plainly_can_be_chosen() -> None:
    model = LanguageModel(tied=False)
    none = _names(model, param_groups(model, plain_modules=()))
    assert none["plain matrices"] == ["head.weight"]
    assert {"tokens.weight", "positions.weight"} < set(none["matrices"])
    convnet = Convnet()
    more = _names(convnet, param_groups(convnet, plain_modules=(*PLAIN_MODULES, nn.Conv2d)))
    assert sorted(more["plain matrices"]) == ["depthwise.weight", "head.weight", "stem.weight"]
    assert "matrices" not in more


def test_plain_groups_have_their_own_hyperparameters_and_vectors_no_decay() -> None:
    model = LanguageModel(tied=False)
    plain = {"lr": 3e-4, "betas": (0.9, 0.95)}
    optimizer = Shampoo(param_groups(model, plain=plain), lr=0.01, weight_decay=0.1, preconditioner="soap")
    matrices, tables, vectors = optimizer.param_groups
    assert [group["preconditioner"] for group in optimizer.param_groups] == ["soap", "none", "none"]
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.1, 0.1, 0.0]
    assert (matrices["lr"], matrices["betas"]) == (0.01, (0.9, 0.999))
    assert [(group["lr"], group["betas"]) for group in (tables, vectors)] == [(3e-4, (0.9, 0.95))] * 2
    assert plain == {"lr": 3e-4, "betas": (0.9, 0.95)}
    decayed = Shampoo(param_groups(model, plain={"weight_decay": 0.2}), weight_decay=0.1)
    assert [group["weight_decay"] for group in decayed.param_groups] == [0.1, 0.2, 0.2]


def test_plain_groups_take_the_steps_of_adamw() -> None:
    model, twin = LanguageModel(tied=False), LanguageModel(tied=False)
    twin.load_state_dict(model.state_dict())
    ours = Shampoo(param_groups(model), lr=0.01, weight_decay=0.1, preconditioner="soap")
    groups = {group["name"]: group["params"] for group in param_groups(twin)}
    adamw = torch.optim.AdamW(
        [
            {"params": groups["plain matrices"], "weight_decay": 0.1},
            {"params": groups["vectors"], "weight_decay": 0.0},
        ],
        lr=0.01,
    )
    generator = torch.Generator().manual_seed(0)
    for _ in range(4):
        for parameter, other in zip(model.parameters(), twin.parameters(), strict=True):
            parameter.grad = torch.randn(parameter.shape, generator=generator)
            other.grad = parameter.grad.clone()
        ours.step()
        adamw.step()
    matrices = {id(parameter) for parameter in param_groups(model)[0]["params"]}
    for parameter, other in zip(model.parameters(), twin.parameters(), strict=True):
        if id(parameter) in matrices:
            assert not torch.equal(parameter, other)
        else:
            torch.testing.assert_close(parameter, other, rtol=1e-6, atol=1e-7)


# --- errors ---


@pytest.mark.parametrize("model", [nn.ReLU(), nn.Linear(3, 3).requires_grad_(False)])
def test_a_model_with_nothing_to_train_is_refused_by_name(model: nn.Module) -> None:
    with pytest.raises(ValueError, match=f"{type(model).__name__} has no parameter that requires a gradient"):
        param_groups(model)


@pytest.mark.parametrize("given", [nn.Linear(3, 3).weight, [nn.Linear(3, 3)], nn.Linear(3, 3).parameters()])
def test_what_is_no_model_is_refused(given: Any) -> None:
    with pytest.raises(TypeError, match=r"takes a model, .*, got a (Parameter|list|generator)$"):
        param_groups(given)


def test_a_model_whose_parameters_have_no_shape_yet_is_told_so() -> None:
    with pytest.raises(ValueError, match="UninitializedParameter has no shape yet: run a batch through the model"):
        param_groups(nn.LazyLinear(3))


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        ({"learning_rate": 0.1}, "unknown hyperparameter 'learning_rate' = 0.1"),
        ({"lr": -1.0}, r"lr must be .*got -1\.0"),
        ({"precondition_frequency": 5}, "precondition_frequency=5 has no effect with preconditioner='none'"),
    ],
)
def test_what_is_illegal_in_plain_is_named_by_the_optimizer(plain: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Shampoo(param_groups(Convnet(), plain=plain))


# --- training ---


def _data(model: nn.Module) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    match model:
        case LanguageModel():
            x = torch.randint(50, (4, 12), generator=generator)
            return x, ((x * 7 + 3) % 50).flatten()
        case Recurrent():
            x = torch.randint(30, (16, 3), generator=generator)
            return x, (x[:, 0] > 15).long()
        case _:
            return torch.randn(16, 3, 8, 8, generator=generator), torch.randint(10, (16,), generator=generator)


@pytest.mark.parametrize("preconditioner", ["shampoo", "soap", "kl", "spectral", "none"])
@pytest.mark.parametrize("make", [lambda: LanguageModel(tied=True), Convnet, Recurrent], ids=["lm", "conv", "gru"])
def test_one_optimizer_and_one_schedule_train_the_whole_model(make: Any, preconditioner: Preconditioner) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = make()
    x, y = _data(model)
    groups = param_groups(model, plain={"lr": 0.02})
    optimizer = Shampoo(groups, lr=0.03, weight_decay=0.01, preconditioner=preconditioner)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 5))
    before = [parameter.detach().clone() for parameter in model.parameters()]
    losses = []
    for step in range(30):
        factor = min(1.0, (step + 1) / 5)
        assert [group["lr"] for group in optimizer.param_groups] == pytest.approx(
            [(0.03 if group["name"] == "matrices" else 0.02) * factor for group in optimizer.param_groups]
        )
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    assert losses[-1] < 0.75 * losses[0], losses
    assert not any(torch.equal(parameter, start) for parameter, start in zip(model.parameters(), before, strict=True))


def test_names_of_groups_survive_a_checkpoint() -> None:
    model = LanguageModel(tied=True)
    optimizer = Shampoo(param_groups(model))
    other = Shampoo(param_groups(LanguageModel(tied=True)))
    other.load_state_dict(optimizer.state_dict())
    assert [group["name"] for group in other.param_groups] == ["matrices", "plain matrices", "vectors"]
