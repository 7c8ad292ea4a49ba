"""Weight averaging lives with everything an optimizer lives with, and swaps weights without a trace."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from shampoo import Shampoo
from shampoo.averaging import WeightAveraging
from shampoo.averaging.arguments import AveragingMethod
from tests.gpu.syncs import syncs_are_errors
from tests.support.shampoo.averaging_methods import (
    INNER,
    METHODS,
    SHAPES,
    assert_close,
    assert_equal,
    assert_same,
    averaged,
    values,
)
from tests.support.shampoo.settings import gradients_like, parameters, train


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("method", METHODS)
def test_weights_come_back_bit_for_bit_even_through_an_exception(method: str, dtype: torch.dtype) -> None:
    params = parameters(SHAPES, dtype)
    optimizer = WeightAveraging(INNER["adamw"](params), **METHODS[method])
    train(optimizer, params, range(9))
    before, state = values(params), optimizer.state_dict()

    def evaluate() -> None:
        with optimizer.averaged_weights():
            assert optimizer.shows_average
            assert not torch.equal(params[0], before[0])
            average = values(params)
            with optimizer.averaged_weights():
                assert_equal(params, average)
            assert_equal(params, average)  # the inner one changed nothing
            params[0].data.zero_()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        evaluate()
    assert not optimizer.shows_average
    assert_equal(params, before)
    assert_same(optimizer.state_dict(), state)


@pytest.mark.parametrize("method", METHODS)
def test_evaluating_between_steps_changes_nothing(method: str) -> None:
    params, undisturbed = parameters(SHAPES), parameters(SHAPES)
    watched, alone = (WeightAveraging(INNER["adamw"](p), **METHODS[method]) for p in (params, undisturbed))
    for step in range(12):
        train(watched, params, range(step, step + 1))
        watched.eval()
        watched.eval()
        watched.train()
        watched.train()
    train(alone, undisturbed, range(12))
    assert_equal(params, undisturbed)


@pytest.mark.parametrize("method", METHODS)
def test_before_the_first_step_the_average_is_the_weights_of_now(method: str) -> None:
    params = parameters(SHAPES)
    optimizer = WeightAveraging(INNER["adamw"](params), **METHODS[method])
    fresh = parameters(SHAPES)
    for param in params:  # weights loaded after the optimizer was made
        param.data.mul_(3)
    for param in fresh:
        param.data.mul_(3)
    assert_equal(averaged(optimizer, params), fresh)
    made_later = WeightAveraging(INNER["adamw"](fresh), **METHODS[method])
    for each, its in ((optimizer, params), (made_later, fresh)):
        train(each, its, range(6))
    assert_equal(averaged(optimizer, params), averaged(made_later, fresh))


def test_what_goes_with_the_trained_weights_is_refused_while_the_average_shows() -> None:
    params = parameters([(3, 3)])
    optimizer = WeightAveraging(INNER["sgd"](params))
    train(optimizer, params, range(2))
    state = optimizer.state_dict()
    with optimizer.averaged_weights():
        average = values(params)
        for action in (
            optimizer.step,
            optimizer.state_dict,
            lambda: optimizer.load_state_dict(state),
            lambda: optimizer.add_param_group({"params": parameters([(2,)])}),
        ):
            with pytest.raises(RuntimeError, match="hold the averaged weights"):
                action()
        assert_equal(params, average)
    assert len(optimizer.param_groups) == 1


@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_works_with_every_optimizer(method: str, inner: str) -> None:
    # A noiseless quadratic: both the trained and the averaged weights approach its minimum at zero. Steps of Adam's
    # length bring an entry w there in |w|/lr steps, here at most 23, and leave the mean of 70 weights at 23/140 of
    # where it began: 1/37 of the squared norm. The bound is nearly four times that.
    params = parameters([(6, 5), (4,)])
    optimizer = WeightAveraging(INNER[inner](params), **METHODS[method])
    optimizer.param_groups[0]["lr"] = 0.1
    norm = sum(float(w.square().sum()) for w in values(params))
    for _ in range(70):
        for param in params:
            param.grad = 2 * param.detach()
        optimizer.step()
    for weights in (values(params), averaged(optimizer, params)):
        assert sum(float(w.square().sum()) for w in weights) < 0.1 * norm


def test_stepping_the_wrapped_optimizer_is_refused_and_moves_nothing() -> None:
    params = parameters([(3, 3)])
    inner = INNER["sgd"](params)
    optimizer = WeightAveraging(inner)
    train(optimizer, params, range(2))
    before = values(params)
    for stepped in (inner, WeightAveraging(inner)):  # nor may another average step it
        with pytest.raises(RuntimeError, match="step the WeightAveraging"):
            stepped.step()
    assert_equal(params, before)
    del optimizer, stepped
    gc.collect()
    inner.step()  # free again


@pytest.mark.parametrize("attach_to", ["averaging", "wrapped"])
@pytest.mark.parametrize(
    "make",
    [
        lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, T_max=8),
        lambda o: torch.optim.lr_scheduler.OneCycleLR(o, max_lr=0.1, total_steps=9),
    ],
    ids=["cosine", "one_cycle"],
)
@pytest.mark.parametrize("method", ["ema", "schedule_free"])
def test_schedulers_work_on_either_optimizer(
    method: AveragingMethod, make: Callable[[Any], Any], attach_to: str
) -> None:
    params, plain = parameters(SHAPES), parameters(SHAPES)
    optimizer, alone = WeightAveraging(torch.optim.AdamW(params), method), torch.optim.AdamW(plain)
    scheduler, expected = make(optimizer if attach_to == "averaging" else optimizer.optimizer), make(alone)
    state = None
    for step in range(8):
        train(optimizer, params, range(step, step + 1))
        scheduler.step()
        train(alone, plain, range(step, step + 1))
        expected.step()
        for name in ("lr", "betas"):
            assert optimizer.param_groups[0][name] == alone.param_groups[0][name]
        if step == 3:
            state = optimizer.state_dict()
    if method == "ema":
        assert_equal(params, plain)
    # torch's optimizers replace their groups when they load: still the same ones on both sides.
    assert state is not None
    optimizer.load_state_dict(state)
    scheduler.optimizer.param_groups[0]["lr"] = 0.25
    assert optimizer.param_groups is optimizer.optimizer.param_groups
    assert optimizer.optimizer.param_groups[0]["lr"] == 0.25


@pytest.mark.parametrize("method", METHODS)
def test_frozen_and_late_parameters(method: str) -> None:
    frozen, late, usual = parameters([(3, 4), (4, 3), (5,)])
    frozen.requires_grad_(False)
    optimizer = WeightAveraging(torch.optim.AdamW([frozen, late, usual], lr=0.1), **METHODS[method])
    alone = parameters([(3, 4), (4, 3), (5,)])[1]
    started_later = WeightAveraging(torch.optim.AdamW([alone], lr=0.1), **METHODS[method])
    at_first = values([frozen, late])
    for step in range(10):
        usual.grad = gradients_like([usual], step=step)[0]
        if step >= 4:
            late.grad = gradients_like([late], step=step)[0]
            alone.grad = gradients_like([alone], step=step)[0]
            started_later.step()
        optimizer.step()
        if step == 3:
            assert_equal(averaged(optimizer, [frozen, late]), at_first)
    assert torch.equal(averaged(optimizer, [frozen])[0], at_first[0])
    if optimizer.arguments.interpolates:  # its own count of steps, so its own weights in the average
        assert_equal([late, *averaged(optimizer, [late])], [alone, *averaged(started_later, [alone])])


@pytest.mark.parametrize("method", METHODS)
def test_a_closure_is_evaluated_once_at_the_trained_weights(method: str) -> None:
    params, by_hand = parameters(SHAPES), parameters(SHAPES)
    optimizer = WeightAveraging(INNER["adamw"](params), **METHODS[method])
    other = WeightAveraging(INNER["adamw"](by_hand), **METHODS[method])
    for step in range(6):
        seen: list[list[Tensor]] = []

        def closure(step: int = step, seen: list[list[Tensor]] = seen) -> float:
            assert torch.is_grad_enabled()
            seen.append(values(params))
            for param, gradient in zip(params, gradients_like(params, step=step), strict=True):
                param.grad = gradient
            return float(step)

        before = values(params)
        assert optimizer.step(closure) == step
        assert len(seen) == 1
        assert_equal(seen[0], before)
        train(other, by_hand, range(step, step + 1))
    assert_equal(params, by_hand)
    with torch.no_grad():
        assert optimizer.step(lambda: 7.0) == 7.0


def test_an_optimizer_that_evaluates_its_closure_often_can_be_watched() -> None:
    param = torch.nn.Parameter(torch.ones(3))
    optimizer = WeightAveraging(torch.optim.LBFGS([param], max_iter=4), "ema")

    def closure() -> float:
        optimizer.zero_grad()
        loss = (param - 2).square().sum()
        loss.backward()
        return float(loss.detach())

    for _ in range(3):
        optimizer.step(closure)
    assert_close([param], [torch.full((3,), 2.0)], atol=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_a_step_that_raises_does_not_count(method: str) -> None:
    params = parameters([(3, 3)])
    inner = Shampoo(params, lr=0.01)
    optimizer = WeightAveraging(inner, **METHODS[method])
    train(optimizer, params, range(5))
    weights, average, count = values(params), averaged(optimizer, params), optimizer.state_dict()
    inner.param_groups[0]["lr"] = -1.0
    with pytest.raises(ValueError, match="lr"):
        train(optimizer, params, range(5, 6))
    inner.param_groups[0]["lr"] = 0.01
    exact = METHODS[method].get("weight_decay_at", "z") == "y" or method in ("ema", "lawa", "schedule_free")
    # Stepping at z, y is recomputed from x and z: two roundings.
    assert_close(params, weights, atol=0.0 if exact else 1e-15)
    assert_close(averaged(optimizer, params), average, atol=0.0 if exact else 1e-14)
    assert optimizer.state_dict()["averaging"]["num_steps"] == count["averaging"]["num_steps"]
    train(optimizer, params, range(5, 6))


@pytest.mark.parametrize("make", [lambda p: torch.optim.AdamW(p, fused=True), INNER["shampoo"]], ids=["adamw", "ours"])
@pytest.mark.parametrize("method", METHODS)
def test_a_gradient_that_overflows_under_a_scaler_is_no_step(
    method: str, make: Callable[[Any], torch.optim.Optimizer]
) -> None:
    params, unscaled = parameters(SHAPES, torch.float32), parameters(SHAPES, torch.float32)
    optimizer = WeightAveraging(make(params), **METHODS[method])
    alone = WeightAveraging(make(unscaled), **METHODS[method])
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for step in range(6):
        for param, gradient in zip(params, gradients_like(params, step=step), strict=True):
            param.grad = gradient * scaler.get_scale() * (math.inf if step == 3 else 1.0)
        scaler.scale(torch.zeros(()))
        scaler.step(optimizer)
        scaler.update()
        if step != 3:
            train(alone, unscaled, range(step, step + 1))
    assert_equal(params, unscaled)  # scales are powers of two
    assert_equal(averaged(optimizer, params), averaged(alone, unscaled))


@pytest.mark.parametrize("method", METHODS)
def test_layout_in_memory_does_not_matter(method: str) -> None:
    shapes = [(4, 3, 5, 2), (6, 9)]
    plain = parameters(shapes)
    odd = [
        torch.nn.Parameter(plain[0].detach().clone().to(memory_format=torch.channels_last)),
        torch.nn.Parameter(plain[1].detach().t().contiguous().t()),
    ]
    assert not any(param.is_contiguous() for param in odd)
    results = []
    for params in (plain, odd):
        optimizer = WeightAveraging(torch.optim.SGD(params, lr=0.1), **METHODS[method])
        train(optimizer, params, range(6))
        results.append([*values(params), *averaged(optimizer, params)])
    assert_close(results[0], results[1], atol=1e-15)


class _HostReads(TorchDispatchMode):
    """Counts the operations that read a number from the device."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # untyped in torch
        self.num_reads = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.num_reads += func in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.is_nonzero.default)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("method", METHODS)
def test_a_step_reads_nothing_from_the_device(method: str, dtype: torch.dtype) -> None:
    params = parameters(SHAPES, dtype)
    optimizer = WeightAveraging(torch.optim.SGD(params, lr=0.1), **METHODS[method])
    with _HostReads() as counter:
        train(optimizer, params, range(1))
        averaged(optimizer, params)
        train(optimizer, params, range(1, 4))
    assert counter.num_reads == 0


@pytest.mark.parametrize("method", METHODS)
def test_gradients_and_optimizer_state_are_not_touched(method: str) -> None:
    params = parameters(SHAPES)
    optimizer = WeightAveraging(INNER["adamw"](params), **METHODS[method])
    gradients = gradients_like(params, step=0)
    for param, gradient in zip(params, gradients, strict=True):
        param.grad = gradient.clone()
    optimizer.step()
    averaged(optimizer, params)
    assert_equal([param.grad for param in params], gradients)
    assert optimizer.state is optimizer.optimizer.state
    assert set(optimizer.state[params[0]]) == {"step", "exp_avg", "exp_avg_sq"}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("method", METHODS)
def test_the_device_gives_the_same_numbers_without_a_sync(method: str) -> None:
    plain = parameters(SHAPES)
    params = [torch.nn.Parameter(param.detach().cuda()) for param in plain]
    results = []
    for its in (plain, params):
        optimizer = WeightAveraging(torch.optim.SGD(its, lr=0.05, weight_decay=0.1), **METHODS[method])
        for step in range(8):
            gradients = [g.to(its[0].device) for g in gradients_like(parameters(SHAPES), step=step)]
            for param, gradient in zip(its, gradients, strict=True):
                param.grad = gradient
            with syncs_are_errors() if its is params else nullcontext():
                optimizer.step()
        results.append([tensor.cpu() for tensor in (*values(its), *averaged(optimizer, its))])
    assert_close(results[1], results[0], atol=1e-12)
