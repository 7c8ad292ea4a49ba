"""Weight averaging against textbook recurrences in float64; low precision; arguments."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from shampoo import Shampoo
from shampoo.averaging import AveragingArguments, WeightAveraging, batches
from shampoo.averaging.arguments import AveragingMethod, WarmUp, WeightDecayAt
from tests.support.shampoo.averaging_methods import (
    INNER,
    SHAPES,
    assert_close,
    assert_equal,
    averaged,
    values,
)
from tests.support.shampoo.settings import gradients_like, parameters, train


@pytest.mark.parametrize("frequency", [1, 3])
@pytest.mark.parametrize("warm_up", ["bias_correction", "ramp", "none"])
def test_ema_is_the_weighted_mean_of_the_trajectory(warm_up: WarmUp, frequency: int) -> None:
    d, params, plain = 0.9, parameters(SHAPES), parameters(SHAPES)
    optimizer = WeightAveraging(torch.optim.AdamW(params), "ema", decay=d, warm_up=warm_up, update_frequency=frequency)
    alone, looked_at = torch.optim.AdamW(plain), []
    for step in range(30):
        train(optimizer, params, range(step, step + 1))
        train(alone, plain, range(step, step + 1))
        if (step + 1) % frequency == 0:
            looked_at.append(values(plain))
    assert_equal(params, plain)  # training is what it was
    # The weight of look i in the n-th average is c_i Π_{j>i} (1 − c_j).
    n = len(looked_at)
    decays = [min(d, (1 + j) / (10 + j)) if warm_up == "ramp" else d for j in range(1, n + 1)]
    shares = [(1.0 if i == 0 else 1 - decays[i]) * math.prod(decays[i + 1 :]) for i in range(n)]
    if warm_up == "bias_correction":
        shares = [d ** (n - 1 - i) for i in range(n)]
    expected = [
        sum(share * w for share, w in zip(shares, ws, strict=True)) / sum(shares) for ws in zip(*looked_at, strict=True)
    ]
    assert_close(averaged(optimizer, params), expected, atol=1e-12)


def test_ema_without_warm_up_equals_torch_averaged_model() -> None:
    model = torch.nn.Linear(4, 3).double()
    stock = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    params = list(model.parameters())
    optimizer = WeightAveraging(torch.optim.SGD(params, lr=0.1), "ema", decay=0.9, warm_up="none")
    for step in range(30):
        train(optimizer, params, range(step, step + 1))
        stock.update_parameters(model)
    assert_close(averaged(optimizer, params), list(stock.module.parameters()), atol=1e-14)


@pytest.mark.parametrize(("method", "arguments"), [("ema", {"decay": 0.9}), ("lawa", {}), ("schedule_free", {})])
def test_what_is_built_in_inference_mode_averages_outside_of_it(method: AveragingMethod, arguments: Any) -> None:
    params, others = parameters([(4, 4)]), parameters([(4, 4)])
    with torch.inference_mode():
        optimizer = WeightAveraging(Shampoo(params), method, **arguments)
    other = WeightAveraging(Shampoo(others), method, **arguments)
    train(optimizer, params, range(3))
    train(other, others, range(3))
    optimizer.eval()
    other.eval()
    assert torch.equal(params[0], others[0])


def test_lawa_is_the_mean_of_the_last_snapshots() -> None:
    params, plain = parameters(SHAPES), parameters(SHAPES)
    optimizer = WeightAveraging(torch.optim.AdamW(params), "lawa", num_snapshots=3, update_frequency=4)
    alone, looked_at = torch.optim.AdamW(plain), [values(plain)]
    for step in range(30):
        train(optimizer, params, range(step, step + 1))
        train(alone, plain, range(step, step + 1))
        if (step + 1) % 4 == 0:
            looked_at.append(values(plain))
        recent = looked_at[1:][-3:] or [values(plain)]
        expected = [torch.stack(ws).mean(0) for ws in zip(*recent, strict=True)]
        assert_close(averaged(optimizer, params), expected, atol=1e-14)
    assert_equal(params, plain)


def _lr_of(step: int) -> float:
    """A warm-up from zero, then a slow decay: unequal weights, one of them zero."""
    return 0.03 * min(step / 5, 1.0) / (1 + 0.02 * step)


def _textbook(
    shapes: list[tuple[int, ...]], inner: str, *, mu_y: float, mu_x: float | None, decay_at: str, steps: int
) -> tuple[list[Tensor], list[Tensor]]:
    """y and x after the steps: three sequences, the optimizer written out, every average from its definition."""
    start = [param.detach() for param in parameters(shapes)]
    xs, zs, vs = values(parameters(shapes)), [w.clone() for w in start], [torch.zeros_like(w) for w in start]
    history: list[tuple[float, list[Tensor]]] = []
    for step in range(steps):
        lr, decay, beta2, epsilon = _lr_of(step), 0.1, 0.9, 1e-8
        ys = [(1 - mu_y) * z + mu_y * x for x, z in zip(xs, zs, strict=True)]
        gradients = gradients_like([torch.nn.Parameter(y) for y in ys], step=step)
        for i, g in enumerate(gradients):
            decayed = ys[i] if decay_at == "y" else zs[i]
            if inner == "sgd":
                direction = g
            else:
                vs[i] = beta2 * vs[i] + (1 - beta2) * g * g
                direction = g / ((vs[i] / (1 - beta2 ** (step + 1))).sqrt() + epsilon)
            zs[i] = zs[i] - lr * direction - lr * decay * decayed
        history.append((lr**2, [z.clone() for z in zs]))
        if mu_x is not None:
            xs = [mu_x * x + (1 - mu_x) * z for x, z in zip(xs, zs, strict=True)]
        else:
            total = sum(weight for weight, _ in history)
            if total > 0:
                xs = [
                    sum((weight * z[i] for weight, z in history), torch.zeros_like(x)) / total for i, x in enumerate(xs)
                ]
    return [(1 - mu_y) * z + mu_y * x for x, z in zip(xs, zs, strict=True)], xs


def _scheduled(inner: str, params: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
    if inner == "sgd":
        return torch.optim.SGD(params, lr=1.0, weight_decay=0.1)
    return torch.optim.AdamW(params, lr=1.0, betas=(0.0, 0.9), weight_decay=0.1)


def _train_scheduled(optimizer: WeightAveraging, params: list[torch.nn.Parameter], steps: int) -> None:
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, _lr_of)
    for step in range(steps):
        train(optimizer, params, range(step, step + 1))
        scheduler.step()


@pytest.mark.parametrize("inner", ["sgd", "adamw"])
@pytest.mark.parametrize("decay_at", ["y", "z"])
@pytest.mark.parametrize("method", ["schedule_free", "primal"])
# The third leaves each parameter whole, the second cuts them into pieces: the same numbers.
@pytest.mark.parametrize(
    ("dtype", "piece", "atol"),
    [
        (torch.float64, 2**16, 1e-12),
        (torch.float64, 4, 1e-12),
        # Weights of order 1, 30 steps that recover x with an error of about 6e-8/μ_y each.
        (torch.float32, 2**16, 2e-5),
    ],
)
def test_interpolated_training_follows_the_textbook(
    method: AveragingMethod,
    decay_at: WeightDecayAt,
    inner: str,
    dtype: torch.dtype,
    piece: int,
    atol: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batches, "_CPU_NUMEL", piece)
    mu_x = None if method == "schedule_free" else 0.8
    ys, xs = _textbook(SHAPES, inner, mu_y=0.6, mu_x=mu_x, decay_at=decay_at, steps=30)
    params = parameters(SHAPES, dtype)
    optimizer = WeightAveraging(_scheduled(inner, params), method, mu_y=0.6, mu_x=mu_x, weight_decay_at=decay_at)
    _train_scheduled(optimizer, params, 30)
    assert_close(params, ys, atol=atol)
    assert_close(averaged(optimizer, params), xs, atol=atol)


@pytest.mark.parametrize("nesterov", [False, True])
def test_primal_averaging_of_sgd_is_momentum(nesterov: bool) -> None:
    momentum, lr, decay = 0.9, 0.01, 0.1
    stock_params, params = parameters(SHAPES), parameters(SHAPES)
    stock = torch.optim.SGD(stock_params, lr=lr, momentum=momentum, nesterov=nesterov, weight_decay=decay)
    inner = torch.optim.SGD(params, lr=lr / (1 - momentum), weight_decay=decay)
    optimizer = WeightAveraging(inner, "primal", mu_x=momentum, mu_y=momentum if nesterov else 1.0, weight_decay_at="y")
    train(stock, stock_params, range(30))
    train(optimizer, params, range(30))
    assert_close(params, stock_params, atol=1e-12)
    if not nesterov:
        assert_equal(averaged(optimizer, params), params)  # y is x


def test_without_weight_decay_it_does_not_matter_where_the_optimizer_steps() -> None:
    at_y, at_z = parameters(SHAPES), parameters(SHAPES)
    cases: list[tuple[list[torch.nn.Parameter], WeightDecayAt]] = [(at_y, "y"), (at_z, "z")]
    for params, where in cases:
        inner = torch.optim.AdamW(params, lr=0.01, weight_decay=0.0)
        train(WeightAveraging(inner, "schedule_free", weight_decay_at=where), params, range(30))
    assert_close(at_y, at_z, atol=1e-12)


@pytest.mark.slow
def test_recovering_the_average_from_float32_does_not_drift() -> None:
    # Each of 3,000 steps rounds x, of size up to 3, by about 1e-7, and the average damps it: sqrt(3000/3)·1e-7 = 3e-6.
    # A μ_y of unequal rounding in y and in x's recovery gives 6e-5 here.
    exact, params = parameters([(40,)]), parameters([(40,)], torch.float32)
    runs = [WeightAveraging(torch.optim.SGD(p, lr=0.01), "schedule_free") for p in (exact, params)]
    for step in range(3000):
        gradient = torch.sin(torch.arange(40, dtype=torch.float64) * step) + 0.1 * exact[0].detach()
        exact[0].grad, params[0].grad = gradient, gradient.float()
        for run in runs:
            run.step()
    assert_close(averaged(runs[1], params), averaged(runs[0], exact), atol=1e-5)


@pytest.mark.parametrize("decay_at", ["y", "z"])
def test_averages_of_bfloat16_parameters_are_float32(decay_at: WeightDecayAt) -> None:
    # The optimizer's moves are multiples of 2^-8 here, which bfloat16 adds exactly to weights of this size: z is exact,
    # and x, which no bfloat16 holds, is exact too.
    param = torch.nn.Parameter(torch.ones(3, dtype=torch.bfloat16) / 2)
    inner = torch.optim.SGD([param], lr=2**-8)
    optimizer = WeightAveraging(inner, "primal", mu_x=0.75, mu_y=0.5, weight_decay_at=decay_at)
    x = z = torch.full((3,), 0.5, dtype=torch.float64)
    for _ in range(20):
        param.grad = torch.ones_like(param)
        optimizer.step()
        z = z - 2**-8
        x = 0.75 * x + 0.25 * z
    state = optimizer.state_dict()["averaging"]["params"][0]
    assert state["z"].dtype == state["x"].dtype == torch.float32
    # z moves by what the rounded weights moved, off by at most their ulp (2^-9 below 0.5) a step, and here far less.
    assert_close([state["x"], state["z"]], [x, z], atol=2**-9)
    assert_equal([param], [torch.lerp(state["z"], state["x"], 0.5).bfloat16()])
    assert_equal(averaged(optimizer, [param]), [state["x"].bfloat16()])


def test_slow_averages_of_bfloat16_parameters_do_not_stall() -> None:
    # 1 − d = 1/1000 of a change of 2^-7 is far below bfloat16's ulp at 1: an average kept in bfloat16 stays at 1.
    param = torch.nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
    optimizer = WeightAveraging(torch.optim.SGD([param], lr=0.0), decay=0.999, warm_up="none")
    expected = 1.0
    for step in range(1000):
        if step == 1:
            param.data.add_(2**-7)
        optimizer.step()
        expected = expected if step == 0 else 0.999 * expected + 0.001 * (1 + 2**-7)
    state = optimizer.state_dict()["averaging"]["params"][0]
    assert state["average"].dtype == torch.float32
    assert_close([state["average"]], [torch.full((4,), expected)], atol=1e-5)  # 1,000 roundings at 6e-8


def test_lawa_of_bfloat16_parameters_takes_the_mean_in_float32() -> None:
    param = torch.nn.Parameter(torch.zeros(1, dtype=torch.bfloat16))
    optimizer = WeightAveraging(torch.optim.SGD([param], lr=0.0), "lawa", num_snapshots=4, update_frequency=1)
    for weight in (256.0, 1.0, 1.0, 2.0):  # 256 + 1 is no bfloat16; the mean 65 is
        param.data.fill_(weight)
        optimizer.step()
    assert averaged(optimizer, [param])[0].item() == 65.0


def test_a_master_copy_inside_the_optimizer_is_refused_where_it_would_hide_y() -> None:
    params = parameters([(4, 4)], torch.bfloat16)
    inner = Shampoo(params, low_precision_weights="master")
    with pytest.raises(ValueError, match="low_precision_weights='master'"):
        WeightAveraging(inner, "schedule_free")
    WeightAveraging(inner, "ema")


def test_schedule_free_weighs_each_group_by_its_own_learning_rate() -> None:
    moving, resting = parameters([(4,), (4,)])
    inner = torch.optim.SGD([{"params": [moving], "lr": 0.1}, {"params": [resting], "lr": 0.0}])
    optimizer = WeightAveraging(inner, "schedule_free")
    before = values([resting])
    train(optimizer, [moving, resting], range(5))
    assert_equal([resting, *averaged(optimizer, [resting])], before * 2)
    states = optimizer.state_dict()["averaging"]["params"]
    assert states[0]["weight_sum"] == pytest.approx(5 * 0.1**2)
    assert states[1]["weight_sum"] == 0.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "swa"}, "method must be one of .*'swa'"),
        ({"decay": 1.0}, r"decay must be .*1\.0"),
        ({"decay": math.nan}, "decay must be .*nan"),
        ({"decay": "0.9"}, "decay must be .*'0.9'"),
        ({"decay": True}, "decay must be .*True"),
        ({"warm_up": "linear"}, "warm_up must be .*'linear'"),
        ({"update_frequency": 0}, "update_frequency must be .*0"),
        ({"update_frequency": 2.0}, r"update_frequency must be .*2\.0"),
        ({"method": "lawa", "num_snapshots": 0}, "num_snapshots must be .*0"),
        ({"method": "schedule_free", "mu_y": 0.0}, r"mu_y must be .*0\.0"),
        ({"method": "schedule_free", "lr_power": -1}, "lr_power must be .*-1"),
        ({"method": "schedule_free", "weight_decay_at": "x"}, "weight_decay_at must be .*'x'"),
        ({"method": "primal", "mu_x": 1}, "mu_x must be .*1"),
        ({"num_snapshots": 3}, "num_snapshots=3 has no effect with method='ema'"),
        ({"method": "lawa", "decay": 0.9}, "decay=0.9 has no effect with method='lawa'"),
        ({"method": "schedule_free", "mu_x": 0.9}, "mu_x=0.9 has no effect with method='schedule_free'"),
        ({"method": "primal", "lr_power": 2.0}, "lr_power=2.0 has no effect with method='primal'"),
        ({"method": "primal", "update_frequency": 2}, "update_frequency=2 has no effect with method='primal'"),
    ],
)
def test_bad_arguments_are_refused_by_name_and_value(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        WeightAveraging(INNER["sgd"](parameters([(3,)])), **arguments)


def test_what_cannot_be_averaged_is_refused() -> None:
    params = parameters([(3,)])
    for optimizer in (params, WeightAveraging(INNER["sgd"](params))):
        with pytest.raises(ValueError, match=r"optimizer must be a torch.optim.Optimizer"):
            WeightAveraging(optimizer)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(ValueError, match="complex64"):
        WeightAveraging(torch.optim.SGD([torch.zeros(2, dtype=torch.complex64, requires_grad=True)], lr=0.1))


def test_arguments_are_flat_and_live() -> None:
    params = parameters([(3,)])
    optimizer = WeightAveraging(INNER["sgd"](params), "ema", decay=0.5)
    assert optimizer.arguments.in_use() == {
        "method": "ema",
        "decay": 0.5,
        "warm_up": "bias_correction",
        "update_frequency": 1,
    }
    assert AveragingArguments(**optimizer.arguments.in_use()) == optimizer.arguments
    train(optimizer, params, range(3))
    optimizer.arguments = dataclasses.replace(optimizer.arguments, decay=0.0)
    train(optimizer, params, range(3, 4))
    assert_equal(averaged(optimizer, params), params)
    with pytest.raises(ValueError, match="method changed from 'ema' to 'lawa'"):
        optimizer.arguments = AveragingArguments("lawa")
    with pytest.raises(ValueError, match="decay must be"):
        optimizer.arguments = dataclasses.replace(optimizer.arguments, decay=2.0)
    assert repr(optimizer).startswith("WeightAveraging(method='ema', decay=0.0")
