"""Promises of every member of the family: it learns, leaves alone what is not its own, and takes any parameters."""

from __future__ import annotations

import functools
import math
import threading
import warnings
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from shampoo import Shampoo
from tests.support.cases import in_one_test
from tests.support.shampoo.members import (
    MEMBERS,
    OF_EACH_STATE,
    OF_EACH_TIMING,
    REPRESENTATIVES,
    WITH_FACTORS,
    crossed,
    member,
)
from tests.support.shampoo.settings import gradients_like, parameters, train
from trainers.workloads.digits.data import read_digits

# One, two and three sides; with blocks of at most 8 the first is two equal blocks, the second one, the last two
# different ones.
SHAPES = [(12,), (6, 7), (9, 4, 5)]
NUM_STEPS = 9  # two refresh periods and a step
NUM_STEPS_OF_EACH_KIND = 6  # a refresh of everything, and one of every unit by its turn


def snapshot(params: list[nn.Parameter]) -> list[Tensor]:
    return [param.detach().clone() for param in params]


def assert_equal(params: list[nn.Parameter], expected: list[Any]) -> None:
    assert all(torch.equal(param.detach(), other.detach()) for param, other in zip(params, expected, strict=True))


@functools.cache
def _digits() -> tuple[Tensor, Tensor]:
    images, labels = read_digits()
    return torch.tensor(images[:200], dtype=torch.float32).view(-1, 1, 8, 8) / 16, torch.tensor(labels[:200])


# Steps as long as the gradient, and those that Adam's bias correction would shorten, want other rates than the rest.
LEARNING_RATES = {"sgd": 1.0, "rmsprop": 0.01}


@pytest.mark.parametrize("name", MEMBERS)
def test_the_loss_of_a_small_real_network_falls(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 6, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(54, 10))
    for param in model.parameters():
        nn.init.normal_(param, std=0.7 * param[0].numel() ** -0.5, generator=generator)
    images, labels = _digits()
    lr = LEARNING_RATES.get(MEMBERS[name].get("grafting", ""), 0.1)
    optimizer = Shampoo(model.parameters(), **{**member(name, max_preconditioner_dim=64), "lr": lr})
    losses = []
    for _ in range(12):  # three refresh periods
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0], losses  # the slowest, of few bits and of RMSprop, are at 0.85


@in_one_test("name", MEMBERS)
def test_gradients_are_never_written(name: str) -> None:
    # l2 decay is the one thing that would be handiest to write into them.
    params = parameters(SHAPES)
    optimizer = Shampoo(params, **member(name, weight_decay=0.1, weight_decay_type="l2"))
    for step in range(NUM_STEPS_OF_EACH_KIND):
        gradients = gradients_like(params, step=step)
        for param, gradient in zip(params, gradients, strict=True):
            param.grad = gradient.clone()
        optimizer.step()
        for param, gradient in zip(params, gradients, strict=True):
            assert param.grad is not None
            assert torch.equal(param.grad, gradient)


def _threads_of_a_new_thread() -> int:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    return found[0]


def _process_state() -> dict[str, Any]:
    import torch._dynamo  # as the first optimizer does; it changes warning filters

    return {
        "random numbers": torch.get_rng_state().tolist(),
        "threads": torch.get_num_threads(),
        "threads of threads to come": _threads_of_a_new_thread(),
        "threads between operations": torch.get_num_interop_threads(),
        "default dtype": torch.get_default_dtype(),
        "default device": torch.get_default_device(),
        "matmul precision": torch.get_float32_matmul_precision(),
        "TF32": (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32),
        "determinism": (torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.deterministic),
        "denormals": torch.tensor([1e-310], dtype=torch.float64).mul(1.0).item(),
        "gradients": torch.is_grad_enabled(),
        "print options": repr(torch.tensor([1 / 3, 1e9])),
        "warning filters": list(warnings.filters),
    }


def _step_and_reload(name: str) -> None:
    params = parameters(SHAPES, torch.bfloat16)
    config = member(name, precondition_frequency=2)
    optimizer = Shampoo(params, **{**config, "low_precision_weights": "stochastic"})
    train(optimizer, params, range(4))
    optimizer.load_state_dict(optimizer.state_dict())


@in_one_test("name", MEMBERS)
def test_the_default_device_is_for_others(name: str) -> None:
    runs = []
    for default in (nullcontext(), torch.device("meta")):
        params = parameters(SHAPES)
        with default:
            optimizer = Shampoo(params, **member(name))
        for step in range(NUM_STEPS_OF_EACH_KIND):
            for param, gradient in zip(params, gradients_like(params, step=step), strict=True):
                param.grad = gradient
            with default:
                optimizer.step()
        with default:
            optimizer.load_state_dict(optimizer.state_dict())
            optimizer.load_distributed_state_dict(optimizer.distributed_state_dict())
            found = optimizer.diagnostics()
        runs.append((found, snapshot(params)))
    assert runs[0][0] == runs[1][0]
    assert all(torch.equal(a, b) for a, b in zip(runs[0][1], runs[1][1], strict=True))


@in_one_test("name", MEMBERS)
def test_no_process_global_state_is_touched(name: str) -> None:
    before = _process_state()
    _step_and_reload(name)
    assert _process_state() == before


@pytest.mark.parametrize("name", [name for name in REPRESENTATIVES if name in WITH_FACTORS])
def test_refreshing_in_threads_touches_no_process_global_state(name: str) -> None:
    num_threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        before = _process_state()
        _step_and_reload(name)
        assert _process_state() == before
    finally:
        torch.set_num_threads(num_threads)


@given(
    shapes=st.lists(
        st.lists(st.sampled_from([0, 1, 2, 3, 5, 7, 11, 40]), max_size=4)
        .map(tuple)
        .filter(lambda shape: math.prod(shape) <= 2000),
        max_size=3,
    ),
    name=st.sampled_from(sorted(MEMBERS)),
    max_dim=st.sampled_from([2, 3, 8, 16, 64]),
)
@pytest.mark.slow
def test_parameters_of_any_shape_take_finite_steps(name: str, shapes: list[tuple[int, ...]], max_dim: int) -> None:
    params = parameters([*shapes, (3, 4)])
    before = snapshot(params)
    optimizer = Shampoo(params, **member(name, max_preconditioner_dim=max_dim, precondition_frequency=2))
    train(optimizer, params, range(4))
    for param, start in zip(params, before, strict=True):
        assert param.isfinite().all()
        assert param.numel() == 0 or not torch.equal(param.detach(), start)
    assert [optimizer.state[param]["step"] for param in params] == [0 if p.numel() == 0 else 4 for p in params]


@in_one_test("name", MEMBERS)
def test_scalars_single_numbers_and_empty_tensors_are_parameters(name: str) -> None:
    params = parameters([(), (1,), (1, 1, 1), (0,), (0, 3), (2, 0, 5), (1, 6), (6, 1)])
    before = snapshot(params)
    optimizer = Shampoo(params, **member(name, weight_decay=0.1))
    train(optimizer, params, range(NUM_STEPS))
    for param, start in zip(params, before, strict=True):
        assert param.shape == start.shape
        assert param.isfinite().all()
        assert param.numel() == 0 or (param.detach() != start).all()


def _strided(param: nn.Parameter, layout: str) -> nn.Parameter:
    """The same values in another layout of memory."""
    X = param.detach()
    match layout:
        case "channels_last":
            Y = X.to(memory_format=torch.channels_last) if X.dim() == 4 else X.clone()
        case "transposed":
            Y = X.permute(*reversed(range(X.dim()))).contiguous().permute(*reversed(range(X.dim())))
        case "every second row":
            Y = torch.stack((X, torch.full_like(X, math.nan)), dim=1)[:, 0]
        case _:
            assert layout == "part of a larger tensor"
            Y = torch.cat((torch.full((5,), math.nan, dtype=X.dtype), X.flatten()))[5:].view(X.shape)
    return nn.Parameter(Y)


LAYOUTS = ("channels_last", "transposed", "every second row", "part of a larger tensor")


@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_layouts_of_memory_make_no_difference(name: str) -> None:
    shapes = [(8, 6, 3, 3), (9, 5), (7,)]
    plain = parameters(shapes * len(LAYOUTS))
    layouts = [layout for layout in LAYOUTS for _ in shapes]
    strided = [_strided(param, layout) for param, layout in zip(plain, layouts, strict=True)]
    assert_equal(strided, plain)
    strides = [param.stride() for param in strided]
    config = member(name, weight_decay=0.1, weight_decay_type="l2")
    train(Shampoo(plain, **config), plain, range(NUM_STEPS))
    train(Shampoo(strided, **config), strided, range(NUM_STEPS))
    assert_equal(strided, plain)
    assert [param.stride() for param in strided] == strides


@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_layouts_of_gradients_make_no_difference(name: str) -> None:
    plain, strided = parameters([(8, 6, 3, 3), (9, 5)]), parameters([(8, 6, 3, 3), (9, 5)])
    one, other = Shampoo(plain, **member(name)), Shampoo(strided, **member(name))
    for step in range(NUM_STEPS):
        gradients = gradients_like(plain, step=step)
        gradients[1] = torch.full((), 0.1 + step, dtype=torch.float64).expand(9, 5)  # as from a sum
        for param, twin, gradient in zip(plain, strided, gradients, strict=True):
            param.grad = gradient.contiguous()
            twin.grad = gradient.to(memory_format=torch.channels_last) if gradient.dim() == 4 else gradient
        one.step()
        other.step()
    assert_equal(strided, plain)


def test_a_parameter_whose_elements_share_memory_is_refused() -> None:
    param = nn.Parameter(torch.zeros(1, 4).expand(3, 4))
    with pytest.raises(ValueError, match=r"parameter 1 .* shape \(3, 4\), strides \(0, 1\)"):
        Shampoo([*parameters([(2, 2)]), param])


@pytest.mark.parametrize("name", OF_EACH_TIMING)
def test_a_parameter_that_gets_its_first_gradient_late_starts_then(name: str) -> None:
    # Phases of the refresh belong to the group, so the one to compare with has the same parameters.
    late, expected = parameters(SHAPES), parameters(SHAPES)
    before = snapshot(late)
    optimizer, undelayed = Shampoo(late, **member(name)), Shampoo(expected, **member(name))
    for step in range(2 + NUM_STEPS):
        for index, (param, gradient) in enumerate(zip(late, gradients_like(late, step=step), strict=True)):
            param.grad = gradient if step >= 2 or index == 0 else None
        optimizer.step()
        if step < 2:
            assert_equal(late[1:], before[1:])
            continue
        for index, (param, gradient) in enumerate(zip(expected, gradients_like(expected, step=step), strict=True)):
            param.grad = gradient if index > 0 else None
        undelayed.step()
    assert_equal(late[1:], expected[1:])
    assert_equal(expected[:1], before[:1])
    assert [optimizer.state[param]["step"] for param in late] == [2 + NUM_STEPS, NUM_STEPS, NUM_STEPS]


@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_frozen_and_unused_parameters_stay_as_they_are(name: str) -> None:
    model = nn.ModuleList([nn.Linear(6, 5), nn.Linear(5, 4), nn.Linear(5, 4)])
    for param in model[0].parameters():
        param.requires_grad_(False)
    params = list(model.parameters())
    before = snapshot(params)
    optimizer = Shampoo(params, **member(name, weight_decay=0.1))
    inputs = torch.randn(7, 6, generator=torch.Generator().manual_seed(0))
    for _ in range(NUM_STEPS):
        optimizer.zero_grad()
        model[1](model[0](inputs)).square().mean().backward()
        optimizer.step()
    for index, (param, start) in enumerate(zip(params, before, strict=True)):
        assert torch.equal(param.detach(), start) == (index not in (2, 3))
        if index < 2:
            assert optimizer.state[param] == {}
        else:
            assert optimizer.state[param]["step"] == (NUM_STEPS if index in (2, 3) else 0)


@pytest.mark.parametrize("name", [*REPRESENTATIVES, "shampoo_together"])
def test_a_group_added_later_trains_as_it_would_alone(name: str) -> None:
    # What groups could share is one for all members; `test_group_rules` has a group of each member beside the others.
    first, second = parameters(SHAPES), parameters([(7, 6), (3,)])
    first_alone, second_alone = parameters(SHAPES), parameters([(7, 6), (3,)])
    optimizer = Shampoo(first, **member(name))
    train(optimizer, first, range(3))
    optimizer.add_param_group({"params": second, "lr": 0.02})
    train(optimizer, [*first, *second], range(3, NUM_STEPS))
    # The gradients of a step depend on all parameters that they are drawn for.
    alone, beside = Shampoo(first_alone, **member(name)), Shampoo(second_alone, **{**member(name), "lr": 0.02})
    train(alone, first_alone, range(3))
    for step in range(3, NUM_STEPS):
        both = [*first_alone, *second_alone]
        for param, gradient in zip(both, gradients_like(both, step=step), strict=True):
            param.grad = gradient
        alone.step()
        beside.step()
    assert_equal([*first, *second], [*first_alone, *second_alone])


@in_one_test(("name", "dtype"), crossed([torch.bfloat16, torch.float16, torch.float32, torch.float64], OF_EACH_STATE))
def test_state_has_at_least_float32_and_follows_float64(name: str, dtype: torch.dtype) -> None:
    params = parameters(SHAPES, dtype)
    optimizer = Shampoo(params, **member(name))
    train(optimizer, params, range(5))
    assert all(param.dtype == dtype and param.isfinite().all() for param in params)
    working = torch.promote_types(dtype, torch.float32)
    low_precision = MEMBERS[name].get("state_dtype", "float32") != "float32"
    for param in params:
        for quantity, tensor in optimizer.state[param].items():
            part = quantity.partition(".")[2]
            always_float32 = quantity.startswith(("condition", "residual"))
            if isinstance(tensor, Tensor) and tensor.is_floating_point() and not always_float32:
                assert tensor.dtype == working or (low_precision and not part.isdigit()), quantity


@in_one_test("name", REPRESENTATIVES)
def test_sparse_gradients_are_refused_and_nothing_moves(name: str) -> None:
    params = parameters([(4, 4), (4, 4)])
    before = snapshot(params)
    optimizer = Shampoo(params, **member(name))
    params[0].grad = torch.ones(4, 4, dtype=torch.float64)
    params[1].grad = torch.eye(4, dtype=torch.float64).to_sparse()
    with pytest.raises(RuntimeError, match=r"dense gradients, got torch.sparse_coo for parameter 1 of group 0 of"):
        optimizer.step()
    assert_equal(params, before)
