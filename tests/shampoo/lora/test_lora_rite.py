"""Properties of `LoraRite`: invariance, what does not move, precision, checkpoints, arguments."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from shampoo import LoraRite, WeightAveraging, lora_param_groups
from tests.support.shampoo.adapters import Pair, Regression, adapted_model, flat, pairs

SHAPES = ((7, 9, 3), (5, 9, 3))


def _products(given: list[Pair], make: Callable[[list[Tensor]], Optimizer], *, num_steps: int) -> list[Tensor]:
    """B A of each pair after each step."""
    found: list[Tensor] = []
    Regression(given).train(
        given,
        make(flat(given)),
        num_steps,
        after=lambda: found.extend((B @ A).detach() for A, B in given),
    )
    return found


def _turned(given: list[Pair]) -> list[Pair]:
    """The same products, as (T A, B T⁻¹) with a T of condition number 100."""
    turned = []
    for A, B in given:
        U, _, V = torch.linalg.svd(torch.randn(len(A), len(A), generator=torch.Generator().manual_seed(5)).double())
        T = U @ torch.diag(torch.logspace(-1, 1, len(A), dtype=torch.float64)) @ V
        with torch.no_grad():
            turned.append(((T @ A).requires_grad_(), (B @ torch.linalg.inv(T)).requires_grad_()))
    return turned


def _rite(params: list[Tensor]) -> Optimizer:
    return LoraRite(params, lr=0.05, weight_decay=0.1, clip_unmagnified_grad=0.5)


def _adamw(params: list[Tensor]) -> Optimizer:
    return AdamW(params, lr=0.05, weight_decay=0.1)


@pytest.mark.parametrize("zero", [True, False])
@pytest.mark.slow
def test_the_path_of_the_product_does_not_depend_on_how_a_pair_is_turned_and_adamws_does(zero: bool) -> None:
    def deviation(make: Callable[[list[Tensor]], Optimizer]) -> float:
        given = pairs(*SHAPES, zero=zero)
        first, second = (
            _products(given, make, num_steps=25),
            _products(_turned(pairs(*SHAPES, zero=zero)), make, num_steps=25),
        )
        return max(float((a - b).norm() / a.norm()) for a, b in zip(first, second, strict=True))

    # T and its inverse round to 1e-14 of what they multiply.
    assert deviation(_rite) < 1e-9
    assert deviation(_adamw) > 0.1


@pytest.mark.slow
def test_a_badly_scaled_pair_is_trained_as_well_as_a_good_one_and_further_than_by_adamw() -> None:
    # A is a thousand times as large as usual, and B as much smaller: AdamW's steps then hardly move one of the two.
    def loss(kind: type[LoraRite | AdamW], lr: float, scale: float) -> float:
        given = pairs((8, 12, 3), zero=False)
        with torch.no_grad():
            given[0][0].mul_(scale)
            given[0][1].div_(scale)
        return Regression(given).train(given, kind(flat(given), lr=lr), 60)

    best = {
        scale: [min(loss(kind, lr, scale) for lr in (1e-2, 1e-1)) for kind in (LoraRite, AdamW)]
        for scale in (1.0, 1000.0)
    }
    assert best[1000.0][0] == pytest.approx(best[1.0][0], rel=1e-6)
    assert best[1.0][0] < 1.02 * best[1.0][1]
    assert best[1000.0][0] < 0.5 * best[1000.0][1]


def test_while_b_is_zero_a_and_its_averages_stay_and_b_moves() -> None:
    given = pairs((7, 9, 3))
    (A, B), before = given[0], given[0][0].detach().clone()
    optimizer = LoraRite([A, B], lr=0.1)
    Regression(given).train(given, optimizer, 1)
    assert torch.equal(A, before)
    assert optimizer.state[A]["weights"].tolist() == [0.0, 0.0]
    assert B.norm() > 0
    Regression(given).train(given, optimizer, 1)
    assert not torch.equal(A, before)


def test_a_frozen_factor_and_one_without_a_gradient_stay_and_the_partner_moves() -> None:
    (A, _), (_, D) = given = pairs(*SHAPES, zero=False)
    A.requires_grad_(False)
    optimizer = LoraRite(flat(given), lr=0.1)
    assert not optimizer.state[A]
    before = [factor.detach().clone() for factor in flat(given)]
    Regression(given).loss(given).backward()
    D.grad = None
    optimizer.step()
    assert [torch.equal(*both) for both in zip(flat(given), before, strict=True)] == [True, False, False, True]
    A.requires_grad_()
    Regression(given).train(given, optimizer, 1)
    assert not torch.equal(A, before[0])
    assert optimizer.state[A]["weights"][0] == pytest.approx(0.1)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_factor_whose_gradient_is_not_finite_stays_and_is_counted(value: float) -> None:
    given, alone = pairs(*SHAPES, zero=False), pairs(*SHAPES, zero=False)
    optimizer, expected = LoraRite(flat(given), lr=0.1), LoraRite(flat(alone), lr=0.1)
    for each, of in ((given, optimizer), (alone, expected)):
        Regression(each).train(each, of, 3)
        Regression(each).loss(each).backward()
    (A, _), _ = given
    kept = copy.deepcopy((A.detach(), {k: v.clone() for k, v in optimizer.state[A].items()}))
    assert A.grad is not None
    A.grad[1, 2] = value
    alone[0][0].grad = None
    optimizer.step()
    expected.step()
    assert torch.equal(A, kept[0])
    skipped = {**kept[1], "num_skipped": kept[1]["num_skipped"] + 1}
    assert all(torch.equal(optimizer.state[A][name], value) for name, value in skipped.items())
    assert all(torch.equal(*both) for both in zip(flat(given), flat(alone), strict=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_factors_have_a_float32_state_and_train(dtype: torch.dtype) -> None:
    given = pairs((8, 12, 3), dtype=dtype)
    optimizer, regression = LoraRite(flat(given), lr=0.05), Regression(given)
    first = regression.loss(given).item()
    last = regression.train(given, optimizer, 60)
    kinds = {v.dtype for state in optimizer.state.values() for name, v in state.items() if name != "num_skipped"}
    assert kinds == {torch.float32}
    assert last < 0.7 * first


def test_a_step_under_autocast_is_the_same_step() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # others would know nothing of it
    try:
        given, expected = (pairs(*SHAPES, dtype=torch.float32, zero=False) for _ in range(2))
        for these, enabled in ((given, True), (expected, False)):
            optimizer = _rite(flat(these))
            for step in range(4):
                generator = torch.Generator().manual_seed(step)
                for param in flat(these):
                    param.grad = torch.randn(param.shape, generator=generator).to(param)
                with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
                    optimizer.step()
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(flat(given), flat(expected), strict=True))


def test_other_parameters_take_the_steps_of_adamw() -> None:
    ours, theirs = (nn.Linear(6, 5).double() for _ in range(2))
    theirs.load_state_dict(ours.state_dict())
    settings: dict[str, Any] = {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-7, "weight_decay": 0.1}
    optimizers = [
        LoraRite([{"params": ours.parameters(), "paired": False}], **settings),
        AdamW(theirs.parameters(), **settings),
    ]
    for step in range(10):
        inputs = torch.randn(8, 6, generator=torch.Generator().manual_seed(step)).double()
        for model, optimizer in zip((ours, theirs), optimizers, strict=True):
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            optimizer.step()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-14)


def test_a_parameter_beside_pairs_whose_gradient_is_not_finite_stays_with_its_state() -> None:
    weight = nn.Parameter(torch.ones(3))
    optimizer = LoraRite([{"params": [weight], "paired": False}], lr=0.1)
    weight.grad = torch.ones(3)
    optimizer.step()
    kept, state = weight.detach().clone(), {k: v.clone() for k, v in optimizer.state[weight].items()}
    weight.grad = torch.tensor([1.0, float("nan"), 1.0])
    optimizer.step()
    assert torch.equal(weight, kept)
    state["num_skipped"] += 1
    assert all(torch.equal(optimizer.state[weight][name], value) for name, value in state.items())


def _train(model: nn.Module, optimizer: Optimizer, *, first: int, last: int) -> None:
    for step in range(first, last):
        generator = torch.Generator().manual_seed(step)
        dtype = next(model.parameters()).dtype
        inputs, targets = (torch.randn(16, n, generator=generator).to(dtype) for n in (12, 4))
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()


def _by_file(optimizer: Optimizer, model: nn.Module) -> tuple[nn.Module, Optimizer]:
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    new = adapted_model().to(next(model.parameters()).dtype)
    new.load_state_dict(saved["model"])
    resumed = LoraRite(lora_param_groups(new))
    resumed.load_state_dict(saved["optimizer"])
    return new, resumed


def _by_copy(optimizer: Optimizer, model: nn.Module) -> tuple[nn.Module, Optimizer]:
    return copy.deepcopy((model, optimizer))


def _by_pickle(optimizer: Optimizer, model: nn.Module) -> tuple[nn.Module, Optimizer]:
    copied: tuple[nn.Module, Optimizer] = pickle.loads(pickle.dumps((model, optimizer)))
    return copied


@pytest.mark.parametrize("way", [_by_file, _by_copy, _by_pickle])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_training_resumed_or_copied_in_the_middle_is_bit_identical(
    way: Callable[[Optimizer, nn.Module], tuple[nn.Module, Optimizer]], dtype: torch.dtype
) -> None:
    model = adapted_model().to(dtype)
    optimizer = LoraRite(lora_param_groups(model), lr=0.01, weight_decay=0.1)
    _train(model, optimizer, first=0, last=3)
    other, resumed = way(optimizer, model)
    _train(model, optimizer, first=3, last=6)
    _train(other, resumed, first=3, last=6)
    assert all(torch.equal(*both) for both in zip(model.parameters(), other.parameters(), strict=True))
    states = zip(optimizer.state.values(), resumed.state.values(), strict=True)
    assert all(torch.equal(a[name], b[name]) for a, b in states for name in a)


def test_the_state_of_another_optimizer_or_of_other_shapes_is_refused_and_nothing_is_written() -> None:
    model = adapted_model()
    optimizer = LoraRite(lora_param_groups(model))
    _train(model, optimizer, first=0, last=2)
    before = copy.deepcopy(optimizer.state_dict())
    params = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    with pytest.raises(ValueError, match="this is the state of another optimizer"):
        optimizer.load_state_dict(AdamW(params).state_dict())
    with pytest.raises(ValueError, match=r"keys 'state' and 'param_groups', got \['model', 'optimizer'\]"):
        optimizer.load_state_dict({"model": {}, "optimizer": before})
    with pytest.raises(ValueError, match=r"checkpoint has groups of \(parameters, paired\)"):
        optimizer.load_state_dict(LoraRite(flat(pairs((3, 3, 1)))).state_dict())
    wrong = copy.deepcopy(before)
    wrong["state"][3]["momentum"] = torch.zeros(2, 2)
    with pytest.raises(ValueError, match=r"state 'momentum' of parameter 3 is .* expected"):
        optimizer.load_state_dict(wrong)
    after = optimizer.state_dict()
    assert all(
        torch.equal(after["state"][key][name], x) for key, kept in before["state"].items() for name, x in kept.items()
    )


def test_a_closure_is_evaluated_once_before_the_step() -> None:
    given = pairs((7, 9, 3))
    optimizer, losses = LoraRite(flat(given), lr=0.01), []

    def closure() -> float:
        optimizer.zero_grad()
        loss = Regression(given).loss(given)
        loss.backward()
        losses.append(loss.item())
        return losses[-1]

    assert [optimizer.step(closure) for _ in range(2)] == losses
    assert losses[1] < losses[0]


def test_weights_are_averaged_around_it() -> None:
    model = adapted_model()
    averaging = WeightAveraging(LoraRite(lora_param_groups(model), lr=0.01), "ema", decay=0.5)
    _train(model, averaging, first=0, last=3)
    trained = model[0].lora_B["default"].weight.detach().clone()  # type: ignore[index, union-attr]  # an adapter
    with averaging.averaged_weights():
        assert not torch.equal(model[0].lora_B["default"].weight, trained)  # type: ignore[index, union-attr]  # likewise


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lr": -1.0}, r"lr must be a finite number >= 0, got -1\.0"),
        ({"betas": (0.9, 1.0)}, r"betas\[1\] must be in \[0, 1\), got 1\.0"),
        ({"betas": 0.9}, r"betas must be a pair of numbers, got 0\.9"),
        ({"eps": 0.0}, r"eps must be a finite number > 0, got 0\.0"),
        ({"weight_decay": "no"}, "weight_decay must be a finite number >= 0, got 'no'"),
        ({"clip_unmagnified_grad": 0}, "clip_unmagnified_grad must be None or a finite number > 0, got 0"),
    ],
)
def test_an_illegal_argument_is_refused_with_its_name_and_value(arguments: dict[str, Any], message: str) -> None:
    (given,) = pairs((3, 3, 1))
    with pytest.raises(ValueError, match=message):
        LoraRite(given, **arguments)
    optimizer = LoraRite(given)
    optimizer.param_groups[0].update(arguments)
    with pytest.raises(ValueError, match=message):
        optimizer.step()


def test_an_unknown_argument_or_key_is_refused_with_the_nearest() -> None:
    (given,) = pairs((3, 3, 1))
    with pytest.raises(
        TypeError, match="unexpected keyword argument 'clip_unmagnified_gradient' = 1, did you mean 'clip_"
    ):
        LoraRite(given, clip_unmagnified_gradient=1)  # type: ignore[arg-type]  # refused
    with pytest.raises(ValueError, match="unknown hyperparameter 'beta' = 1, did you mean 'betas'"):
        LoraRite([{"params": given, "beta": 1}])
    optimizer = LoraRite(given)
    optimizer.param_groups[0]["paired"] = False
    given[0].grad = torch.zeros_like(given[0])
    with pytest.raises(ValueError, match="paired changed to False"):
        optimizer.step()


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ([(3, 4)], "params must be pairs, A and B in turns, got 1 parameters"),
        (
            [(3, 4), (5, 2)],
            r"parameters 0 and 1 must be a pair .* got \(3, 4\) and \(5, 2\); shampoo.lora_param_groups",
        ),
        ([(3, 4), (3,)], r"must be a pair of factors \(r, in\) and \(out, r\), got \(3, 4\) and \(3,\)"),
    ],
)
def test_parameters_that_are_no_pairs_are_refused(shapes: list[tuple[int, ...]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LoraRite([torch.zeros(shape, requires_grad=True) for shape in shapes])


def test_a_learning_rate_of_a_schedule_counts_from_the_next_step() -> None:
    given = pairs((7, 9, 3), zero=False)
    optimizer = LoraRite(flat(given), lr=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 if step == 0 else 0.0)
    Regression(given).train(given, optimizer, 1)
    schedule.step()
    before = [factor.detach().clone() for factor in flat(given)]
    Regression(given).train(given, optimizer, 1)
    assert all(torch.equal(*both) for both in zip(flat(given), before, strict=True))


def test_groups_of_a_model_are_its_pairs_and_the_rest_by_adamw() -> None:
    model = adapted_model()
    groups = lora_param_groups(model)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    assert [[names[id(parameter)] for parameter in group["params"]] for group in groups] == [
        [f"{layer}.lora_{letter}.default.weight" for layer in (0, 2) for letter in "AB"],
        ["4.weight"],
        ["3.weight", "3.bias", "4.bias"],
    ]
    assert [(group.get("paired", True), group.get("weight_decay")) for group in groups] == [
        (True, None),
        (False, None),
        (False, 0.0),
    ]


def test_a_model_without_a_trained_pair_is_refused() -> None:
    model = adapted_model()
    with pytest.raises(ValueError, match=r"Linear has no trained pair of low-rank factors, .* lora_A and lora_B or"):
        lora_param_groups(nn.Linear(3, 3))
    with pytest.raises(ValueError, match="Sequential has no trained pair"):
        lora_param_groups(model.requires_grad_(False))
    model[2].lora_A.requires_grad_(True)
    assert [len(group["params"]) for group in lora_param_groups(model)] == [2]


def test_kernels_of_convolutions_are_pairs() -> None:
    A, B = (torch.randn(shape, requires_grad=True) for shape in ((2, 3, 5, 5), (4, 2, 1, 1)))
    optimizer = LoraRite([A, B], lr=0.1)
    before = A.detach().clone()
    nn.functional.conv2d(nn.functional.conv2d(torch.randn(2, 3, 8, 8), A), B).square().mean().backward()
    optimizer.step()
    assert A.shape == before.shape
    assert not torch.equal(A, before)


@pytest.mark.slow
def test_a_compiled_model_trains_as_it_does_uncompiled() -> None:
    plain, model = adapted_model(), adapted_model()
    for net, one in ((plain, plain), (torch.compile(model, backend="eager"), model)):
        optimizer = LoraRite(lora_param_groups(one), lr=0.01)
        for step in range(4):
            optimizer.zero_grad()
            net(torch.randn(8, 12, generator=torch.Generator().manual_seed(step))).square().mean().backward()
            optimizer.step()
    assert all(torch.equal(*both) for both in zip(plain.parameters(), model.parameters(), strict=True))
