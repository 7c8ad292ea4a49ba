"""Gradients that are not finite, where the host can read them and where it must not wait for the device."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import shampoo.state.buckets
from shampoo import Shampoo
from tests.support.cases import in_one_test
from tests.support.shampoo.members import MEMBERS, OF_EACH_TIMING, REPRESENTATIVES, member
from tests.support.shampoo.settings import gradients_like, parameters, train

# The first two share a bucket.
SHAPES = [(6, 7), (6, 7), (5,)]
NUM_STEPS = 8  # two refresh periods
KEPT = ("weights", "first_moment.0", "second_moment.0")


@pytest.fixture(params=["by piece", "together"])
def host_cannot_read(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps as where reading a number would stop a queue of work, as on a GPU, and each piece where it lies or all
    brought together."""
    monkeypatch.setattr(shampoo.state.buckets, "READABLE_DEVICES", frozenset())
    monkeypatch.setattr(shampoo.state.buckets, "FEW_PIECES", {"by piece": len(SHAPES), "together": 0}[request.param])


def _num_skipped(optimizer: Shampoo, params: list[nn.Parameter]) -> list[int]:
    return [int(optimizer.state[param]["num_skipped"]) for param in params]


def _train(optimizer: Shampoo, params: list[nn.Parameter], *, spoilt: dict[int, float], absent: bool = False) -> None:
    """Steps with one entry of the middle parameter's gradient replaced, or that gradient missing, in some steps."""
    for step in range(NUM_STEPS):
        gradients: list[Tensor | None] = list(gradients_like(params, step=step))
        if step in spoilt:
            assert gradients[1] is not None
            gradients[1][3, 3] = spoilt[step]
            gradients[1] = None if absent else gradients[1]
        for param, gradient in zip(params, gradients, strict=True):
            param.grad = gradient
        optimizer.step()


@in_one_test("name", OF_EACH_TIMING)
def test_a_gradient_that_is_not_finite_counts_as_none_and_is_counted(name: str) -> None:
    params, expected = parameters(SHAPES), parameters(SHAPES)
    config = member(name, weight_decay=0.1)
    optimizer, undisturbed = Shampoo(params, **config), Shampoo(expected, **config)
    spoilt = {0: math.nan, 5: math.inf, 6: -math.inf}
    _train(optimizer, params, spoilt=spoilt)
    _train(undisturbed, expected, spoilt=spoilt, absent=True)
    assert all(torch.equal(a, b) for a, b in zip(params, expected, strict=True))
    assert _num_skipped(optimizer, params) == [0, 3, 0]
    assert _num_skipped(undisturbed, expected) == [0, 0, 0]
    assert [optimizer.state[param]["step"] for param in params] == [NUM_STEPS, NUM_STEPS - 3, NUM_STEPS]


@in_one_test("name", REPRESENTATIVES)
def test_a_gradient_whose_norm_overflows_is_skipped(name: str) -> None:
    params = parameters([(6, 6)], torch.float32)
    optimizer = Shampoo(params, **member(name, precondition_frequency=2))
    before = params[0].detach().clone()
    params[0].grad = torch.full((6, 6), 1e38)
    optimizer.step()
    assert torch.equal(params[0].detach(), before)
    assert _num_skipped(optimizer, params) == [1]
    train(optimizer, params, range(3))
    assert params[0].isfinite().all()


@pytest.mark.usefixtures("host_cannot_read")
@in_one_test("name", MEMBERS)
def test_where_the_host_cannot_read_a_gradient_that_is_not_finite_moves_nothing_and_is_counted(name: str) -> None:
    params = parameters(SHAPES)
    optimizer = Shampoo(params, **member(name, weight_decay=0.1))
    for step in range(NUM_STEPS):
        for param, gradient in zip(params, gradients_like(params, step=step), strict=True):
            param.grad = gradient
        spoilt = {0: math.nan, 5: math.inf, 6: -math.inf}.get(step)
        if spoilt is not None:
            assert params[1].grad is not None
            params[1].grad[3, 3] = spoilt
        before = [param.detach().clone() for param in params]
        optimizer.step()
        stayed = [torch.equal(param.detach(), start) for param, start in zip(params, before, strict=True)]
        assert stayed == [False, spoilt is not None, False], step
    assert _num_skipped(optimizer, params) == [0, 3, 0]
    assert all(param.isfinite().all() for param in params)
    for state in optimizer.state.values():
        for quantity, value in state.items():
            if isinstance(value, Tensor):
                assert value.isfinite().all(), quantity


def _outcome(config: dict[str, Any], *, spoilt: dict[int, float]) -> dict[str, Any]:
    """Weights and state after some steps."""
    params = parameters(SHAPES)
    optimizer = Shampoo(params, **config)
    _train(optimizer, params, spoilt=spoilt)
    tensors = {f"{i} {key}": x for i, param in enumerate(params) for key, x in optimizer.state[param].items()}
    return {**tensors, **{f"{i}": param.detach() for i, param in enumerate(params)}}


def _assert_alike(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    for key, value in one.items():
        if isinstance(value, Tensor):
            torch.testing.assert_close(other[key], value, rtol=1e-9, atol=1e-9, msg=key)
        else:
            assert value == other[key], key


@pytest.mark.parametrize("changes", [{"weight_decay": 0.1}, {}, {"weight_decay": 0.1, "weight_decay_type": "l2"}])
@in_one_test("name", OF_EACH_TIMING)
def test_finite_gradients_are_stepped_the_same_wherever_the_host_can_read(name: str, changes: dict[str, Any]) -> None:
    config = member(name, **changes)
    expected = _outcome(config, spoilt={})
    for few_pieces in (0, len(SHAPES)):
        with pytest.MonkeyPatch.context() as patch:  # the next case has to find what this one has found
            patch.setattr(shampoo.state.buckets, "READABLE_DEVICES", frozenset())
            patch.setattr(shampoo.state.buckets, "FEW_PIECES", few_pieces)
            _assert_alike(_outcome(config, spoilt={}), expected)


@pytest.mark.usefixtures("host_cannot_read")
def test_an_infinite_weight_stays_infinite_where_the_host_cannot_read() -> None:
    params = parameters(SHAPES)
    optimizer = Shampoo(params, weight_decay=0.1)
    params[0].data[0, 0] = -math.inf
    for param, gradient in zip(params, gradients_like(params, step=0), strict=True):
        param.grad = gradient
    optimizer.step()
    assert params[0][0, 0] == -math.inf
    assert not params[0].isnan().any()


@pytest.mark.parametrize(
    ("changed", "is_adamw"),
    [
        ({}, True),
        ({"weight_decay": 0.0}, True),
        ({"weight_decay_type": "independent"}, True),
        ({"lr": 0.0}, True),
        ({"weight_decay_type": "l2"}, False),
        ({"betas": (0.0, 0.9)}, False),  # there is no average
        ({"beta3": 0.5}, False),
        ({"momentum": 0.9}, False),
        ({"use_bias_correction": False}, False),
        ({"grafting": "rmsprop"}, False),
    ],
)
def test_large_plain_parameters_take_the_same_steps_and_in_one_kernel_where_they_are_adamws(
    changed: dict[str, Any], is_adamw: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {"preconditioner": "none", "lr": 0.01, "betas": (0.9, 0.99), "weight_decay": 0.1, **changed}
    expected = _outcome(config, spoilt={})
    steps = _steps_in_one_kernel(monkeypatch)
    _assert_alike(_outcome(config, spoilt={}), expected)
    assert len(set(steps)) == (NUM_STEPS if is_adamw else 0)


@pytest.mark.parametrize("low_precision_weights", ["nearest", "master", "stochastic"])
def test_large_plain_parameters_of_several_precisions_in_a_group_take_the_same_steps(
    low_precision_weights: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tolerances = {torch.float32: 1e-6, torch.float64: 1e-9, torch.bfloat16: 0.03, torch.float16: 0.004}
    precision = {"low_precision_weights": low_precision_weights}
    config: dict[str, Any] = {"preconditioner": "none", "weight_decay": 0.1, **precision}

    def trained() -> list[nn.Parameter]:
        params = [param for dtype in tolerances for param in parameters(SHAPES[:1], dtype)]
        _train(Shampoo(params, **config), params, spoilt={})
        return params

    expected = trained()
    steps = _steps_in_one_kernel(monkeypatch)
    for param, other in zip(trained(), expected, strict=True):
        tolerance = tolerances[param.dtype]
        torch.testing.assert_close(param, other, rtol=tolerance, atol=tolerance)
    # Of float32 and float64: the kernel takes gradients and averages of one precision.
    assert sorted(steps) == [step for step in range(1, NUM_STEPS + 1) for _ in range(2)]


def _steps_in_one_kernel(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """From now on parameters of 40 elements are large, and the host cannot read; gives the steps of which each is a
    chunk's in one kernel, as they are made."""
    monkeypatch.setattr(shampoo.state.buckets, "READABLE_DEVICES", frozenset())
    monkeypatch.setattr(shampoo.state.buckets, "LARGE_ELEMENTS", 40)
    steps: list[int] = []
    whole = shampoo.step.weights.Weights.adamw_where_finite

    def counted(*args: Any, **named: Any) -> None:
        steps.append(named["step"])
        whole(*args, **named)

    monkeypatch.setattr(shampoo.step.weights.Weights, "adamw_where_finite", counted)
    return steps


def test_a_large_plain_parameter_whose_gradient_is_not_finite_keeps_weights_and_moments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shampoo.state.buckets, "READABLE_DEVICES", frozenset())
    monkeypatch.setattr(shampoo.state.buckets, "LARGE_ELEMENTS", 40)
    params = parameters(SHAPES)
    optimizer = Shampoo(params, preconditioner="none", weight_decay=0.1)
    _train(optimizer, params, spoilt={})
    before = [{**optimizer.state[param], "weights": param}[key].clone() for param in params for key in KEPT]
    for param, gradient in zip(params, gradients_like(params, step=0), strict=True):
        param.grad = gradient
    params[1].grad.view(-1)[0] = math.inf  # type: ignore[union-attr]
    optimizer.step()
    after = [{**optimizer.state[param], "weights": param}[key] for param in params for key in KEPT]
    stayed = [torch.equal(a, b) for a, b in zip(before, after, strict=True)]
    assert stayed == [False] * 3 + [True] * 3 + [False] * 3


class _ReadsByTheHost(TorchDispatchMode):
    """Operations that make the host wait for a device: those that give it numbers, or shapes made of numbers."""

    WAITING = ("_local_scalar_dense", "is_nonzero", "item", "nonzero", "masked_select", "unique", "equal", "allclose")

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # untyped in torch
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        by_mask = name in ("index", "index_put", "index_put_") and any(
            isinstance(index, Tensor) and index.dtype == torch.bool for index in args[1]
        )
        if name in self.WAITING or by_mask:
            self.found.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.usefixtures("host_cannot_read")
@in_one_test("name", MEMBERS)
def test_an_ordinary_step_never_makes_the_host_wait(name: str) -> None:
    # Ordinary: after the first refresh of all units, in a step in which none is due.
    params = parameters([(6, 7), (9, 5), (5,)])
    config = member(name, precondition_frequency=50)
    preconditioner = config.get("preconditioner", "shampoo")
    if preconditioner in ("shampoo", "soap"):
        config["start_preconditioning_step"] = 2
    if preconditioner in ("shampoo", "soap", "kl"):
        config["stagger_refresh"] = False
    if "statistics_frequency" in config:
        config["statistics_frequency"] = 1
    optimizer = Shampoo(params, **config)
    train(optimizer, params, range(4))
    for param, gradient in zip(params, gradients_like(params, step=4), strict=True):
        param.grad = gradient
    with _ReadsByTheHost() as reads:
        optimizer.step()
    assert reads.found == []
