"""In the training loops people have: closures, schedules, gradient scaling, compiled models, accumulation, hooks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler, swa_utils
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LRScheduler, OneCycleLR, StepLR

from shampoo import Shampoo
from tests.support.shampoo.members import REPRESENTATIVES, member
from tests.support.shampoo.settings import parameters, train


def _model() -> nn.Sequential:
    model = nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 3))
    generator = torch.Generator().manual_seed(0)
    for param in model.parameters():
        nn.init.normal_(param, std=0.5, generator=generator)
    return model


def _loss(model: nn.Module, step: int) -> Tensor:
    generator = torch.Generator().manual_seed(step)
    inputs = torch.randn(12, 6, generator=generator)
    return nn.functional.mse_loss(model(inputs), inputs[:, :3].sin())


def _weights(model: nn.Module) -> list[Tensor]:
    return [param.detach().clone() for param in model.parameters()]


@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_a_closure_gives_the_loss_and_the_same_steps(name: str) -> None:
    model, by_hand = _model(), _model()
    optimizer, other = Shampoo(model.parameters(), **member(name)), Shampoo(by_hand.parameters(), **member(name))
    for step in range(6):

        def closure(step: int = step) -> Tensor:
            optimizer.zero_grad()
            loss = _loss(model, step)
            loss.backward()
            return loss

        found = optimizer.step(closure)
        other.zero_grad()
        expected = _loss(by_hand, step)
        expected.backward()
        assert other.step() is None
        assert isinstance(found, Tensor)
        assert torch.equal(found, expected)
    assert all(torch.equal(a, b) for a, b in zip(_weights(model), _weights(by_hand), strict=True))


SCHEDULES: dict[str, Callable[[Shampoo], LRScheduler]] = {
    "lambda": lambda optimizer: LambdaLR(optimizer, lambda step: 1 / (step + 1)),
    "cosine": lambda optimizer: CosineAnnealingLR(optimizer, T_max=10),
    # It moves betas[0] as well, which several members keep at 0.
    "one_cycle": lambda optimizer: OneCycleLR(optimizer, max_lr=0.1, total_steps=10, cycle_momentum=False),
}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_a_schedule_is_what_setting_the_learning_rate_by_hand_is(name: str, schedule: str) -> None:
    params, by_hand = parameters([(6, 7), (5,)]), parameters([(6, 7), (5,)])
    optimizer, other = Shampoo(params, **member(name)), Shampoo(by_hand, **member(name))
    scheduler = SCHEDULES[schedule](optimizer)
    rates = []
    for step in range(7):
        (rate,) = scheduler.get_last_lr()
        rates.append(rate)
        train(optimizer, params, range(step, step + 1))
        scheduler.step()
        other.param_groups[0]["lr"] = rate
        train(other, by_hand, range(step, step + 1))
    assert len(set(rates)) == 7
    assert all(torch.equal(a, b) for a, b in zip(params, by_hand, strict=True))


# All that torch has, with whatever they put into groups.
ANY_SCHEDULE: dict[type[LRScheduler], Callable[[Shampoo], LRScheduler]] = {
    lr_scheduler.LambdaLR: SCHEDULES["lambda"],
    lr_scheduler.MultiplicativeLR: lambda optimizer: lr_scheduler.MultiplicativeLR(optimizer, lambda _: 0.9),
    lr_scheduler.StepLR: lambda optimizer: lr_scheduler.StepLR(optimizer, 2),
    lr_scheduler.MultiStepLR: lambda optimizer: lr_scheduler.MultiStepLR(optimizer, [2]),
    lr_scheduler.ConstantLR: lambda optimizer: lr_scheduler.ConstantLR(optimizer, total_iters=2),
    lr_scheduler.LinearLR: lambda optimizer: lr_scheduler.LinearLR(optimizer, total_iters=3),
    lr_scheduler.ExponentialLR: lambda optimizer: lr_scheduler.ExponentialLR(optimizer, 0.9),
    lr_scheduler.PolynomialLR: lambda optimizer: lr_scheduler.PolynomialLR(optimizer),
    lr_scheduler.CosineAnnealingLR: SCHEDULES["cosine"],
    lr_scheduler.CosineAnnealingWarmRestarts: lambda optimizer: lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 3),
    lr_scheduler.CyclicLR: lambda optimizer: lr_scheduler.CyclicLR(optimizer, 0.001, 0.1, step_size_up=2),
    lr_scheduler.OneCycleLR: lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=10),
    lr_scheduler.ReduceLROnPlateau: lambda optimizer: lr_scheduler.ReduceLROnPlateau(optimizer, patience=0),
    lr_scheduler.ChainedScheduler: lambda optimizer: lr_scheduler.ChainedScheduler(
        [SCHEDULES["cosine"](optimizer), lr_scheduler.ExponentialLR(optimizer, 0.9)]
    ),
    lr_scheduler.SequentialLR: lambda optimizer: lr_scheduler.SequentialLR(
        optimizer, [lr_scheduler.ConstantLR(optimizer), SCHEDULES["cosine"](optimizer)], [2]
    ),
    swa_utils.SWALR: lambda optimizer: swa_utils.SWALR(optimizer, 0.05, anneal_epochs=3),
}


def test_every_schedule_of_torch_is_known_here() -> None:
    modules = (vars(lr_scheduler), vars(swa_utils))
    classes = {x for module in modules for x in module.values() if isinstance(x, type) and issubclass(x, LRScheduler)}
    # The base, and its subclass for old code.
    assert classes - {LRScheduler, vars(lr_scheduler)["_LRScheduler"]} == set(ANY_SCHEDULE)


@pytest.mark.parametrize("schedule", ANY_SCHEDULE)
def test_any_schedule_of_torch_moves_the_learning_rate_and_is_resumed(schedule: type[LRScheduler]) -> None:
    params = parameters([(6, 7), (5,)])
    optimizer = Shampoo([{"params": [param], "name": f"{param.ndim}"} for param in params], lr=0.01)
    scheduler = ANY_SCHEDULE[schedule](optimizer)
    rates = set()
    for step in range(6):
        rates.add(optimizer.param_groups[1]["lr"])
        train(optimizer, params, range(step, step + 1))
        if isinstance(scheduler, lr_scheduler.ReduceLROnPlateau):
            scheduler.step(1.0)
        else:
            scheduler.step()
    assert len(rates) > 1
    resumed_params = [nn.Parameter(param.detach().clone()) for param in params]
    resumed = Shampoo([{"params": [param], "name": f"{param.ndim}"} for param in resumed_params], lr=0.01)
    resumed.load_state_dict(optimizer.state_dict())
    for each, its in ((optimizer, params), (resumed, resumed_params)):
        train(each, its, range(6, 7))
    assert all(torch.equal(a, b) for a, b in zip(params, resumed_params, strict=True))


def test_a_schedule_that_rounding_takes_below_0_ends_at_0() -> None:
    """Of `LinearLR`, whose rates follow from one another; what is below 0 by more is refused."""
    (param,) = parameters([(6, 7)])
    optimizer = Shampoo([param], lr=0.001)
    scheduler = lr_scheduler.LinearLR(optimizer, start_factor=0.1, end_factor=0.0, total_iters=4)
    for step in range(4):
        train(optimizer, [param], range(step, step + 1))
        scheduler.step()
    assert -1e-18 < optimizer.param_groups[0]["lr"] < 0.0
    before = param.detach().clone()
    train(optimizer, [param], range(4, 5))
    assert torch.equal(param, before)
    optimizer.param_groups[0]["lr"] = -1e-9
    with pytest.raises(ValueError, match="lr must be a finite number >= 0, got -1e-09"):
        train(optimizer, [param], range(5, 6))


@pytest.mark.parametrize("name", ["shampoo_adam", "soap", "kl", "spectral", "adam"])
def test_one_cycle_may_move_the_momentum_too(name: str) -> None:
    params, constant = parameters([(6, 7)]), parameters([(6, 7)])
    optimizer, other = Shampoo(params, **member(name)), Shampoo(constant, **member(name))
    schedule = OneCycleLR(optimizer, max_lr=0.1, total_steps=10, base_momentum=0.5)
    first_betas = set()
    for step in range(7):
        first_betas.add(optimizer.param_groups[0]["betas"][0])
        other.param_groups[0].update(lr=optimizer.param_groups[0]["lr"], betas=optimizer.param_groups[0]["betas"])
        train(optimizer, params, range(step, step + 1))
        train(other, constant, range(step, step + 1))
        schedule.step()
    assert len(first_betas) == 7
    assert torch.equal(params[0], constant[0])


def test_one_cycle_without_an_average_is_told_to_leave_the_momentum_alone() -> None:
    params = parameters([(6, 7)])
    optimizer = Shampoo(params, preconditioner="none", grafting="sgd", betas=(0.0, 0.999), momentum=0.9)
    OneCycleLR(optimizer, max_lr=0.1, total_steps=10)
    with pytest.raises(ValueError, match=r"betas\[0\] > 0 changed .* unless told cycle_momentum=False"):
        train(optimizer, params, range(1))
    train(Shampoo(params), params, range(1))


@pytest.mark.parametrize("name", ["shampoo_adam", "kl"])
def test_a_learning_rate_in_a_tensor_is_read_at_every_step(name: str) -> None:
    params, others = parameters([(6, 7)]), parameters([(6, 7)])
    lr = torch.tensor(0.125)
    optimizer = Shampoo(params, **{**member(name), "lr": lr})
    other = Shampoo(others, **{**member(name), "lr": 0.125})
    schedule, another = StepLR(optimizer, 1, gamma=0.5), StepLR(other, 1, gamma=0.5)
    for step in range(3):
        train(optimizer, params, range(step, step + 1))
        train(other, others, range(step, step + 1))
        schedule.step()
        another.step()
    assert lr == 1 / 64  # torch's schedules write into it
    assert torch.equal(params[0], others[0])
    groups = optimizer.state_dict()["param_groups"]
    assert groups == other.state_dict()["param_groups"]
    assert not any(isinstance(value, Tensor) for value in groups[0].values())


@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_gradient_scaling_skips_a_step_that_overflows_and_leaves_the_state_untouched(name: str) -> None:
    model, unscaled = _model(), _model()
    optimizer, other = Shampoo(model.parameters(), **member(name)), Shampoo(unscaled.parameters(), **member(name))
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    for step in range(6):
        optimizer.zero_grad()
        scaler.scale(_loss(model, step)).backward()
        overflows = step in (0, 3)
        if overflows:
            weight = model[0].get_parameter("weight")
            assert weight.grad is not None
            weight.grad[1, 1] = torch.inf
        before = optimizer.state_dict()["state"]
        scaler.step(optimizer)
        scaler.update()
        if overflows:
            after = optimizer.state_dict()["state"]
            for index, state in before.items():
                for key, value in state.items():
                    assert torch.equal(value, after[index][key]) if isinstance(value, Tensor) else True, key
            continue
        other.zero_grad()
        _loss(unscaled, step).backward()
        other.step()
    # Scales are powers of two, which float32 takes out without rounding.
    assert all(torch.equal(a, b) for a, b in zip(_weights(model), _weights(unscaled), strict=True))
    assert [optimizer.state[param]["step"] for param in model.parameters()] == [4] * 4
    assert not any(int(optimizer.state[param]["num_skipped"]) for param in model.parameters())


@pytest.mark.parametrize("name", REPRESENTATIVES)
@pytest.mark.parametrize("num_threads", [1, 2])
def test_a_step_under_autocast_is_the_same_step(name: str, num_threads: int) -> None:
    model, other = _model(), _model()
    under, plain = Shampoo(model.parameters(), **member(name)), Shampoo(other.parameters(), **member(name))
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        for step in range(6):
            for net, optimizer in ((model, under), (other, plain)):
                optimizer.zero_grad()
                _loss(net, step).backward()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                measured = under.diagnostics()
                under.step()
                assert torch.is_autocast_enabled("cpu")
            assert measured == plain.diagnostics()
            plain.step()
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(_weights(model), _weights(other), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "names"),
    [("aot_eager", ["soap"]), ("eager", ["shampoo_adam", "soap", "kl", "spectral", "spectral_rank", "adam"])],
)
def test_a_compiled_model_trains_as_it_does_uncompiled(backend: str, names: list[str]) -> None:
    model = _model()
    torch.compiler.reset()
    compiled: Any = torch.compile(model, backend=backend)  # once: that is what takes time
    for name in names:
        plain = _model()
        model.load_state_dict(plain.state_dict())
        optimizer, other = Shampoo(compiled.parameters(), **member(name)), Shampoo(plain.parameters(), **member(name))
        for step in range(6):
            for owner, net in ((optimizer, compiled), (other, plain)):
                owner.zero_grad()
                _loss(net, step).backward()
                owner.step()
        found, expected = dict(model.named_parameters()), dict(plain.named_parameters())
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6, msg=f"{name}: {{}}".format)


@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_accumulated_gradients_are_one_gradient(name: str) -> None:
    model, other = _model(), _model()
    optimizer, at_once = Shampoo(model.parameters(), **member(name)), Shampoo(other.parameters(), **member(name))
    for step in range(5):
        optimizer.zero_grad()
        for part in range(2):
            _loss(model, 2 * step + part).backward()
        optimizer.step()
        at_once.zero_grad()
        for param, gradient in zip(
            other.parameters(), [p.grad.clone() for p in model.parameters() if p.grad is not None], strict=True
        ):
            param.grad = gradient
        at_once.step()
    assert all(torch.equal(a, b) for a, b in zip(_weights(model), _weights(other), strict=True))


@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_a_step_as_soon_as_the_gradient_is_there_is_the_same_step(name: str) -> None:
    # Optimizer in the backward pass: each parameter has its own, and its gradient is gone after it.
    model, other = _model(), _model()
    own = {param: Shampoo([param], **member(name)) for param in model.parameters()}
    apart = [Shampoo([param], **member(name)) for param in other.parameters()]

    def step_now(param: Tensor) -> None:
        own[param].step()  # type: ignore[index]  # the hook's parameter is one of these
        own[param].zero_grad()  # type: ignore[index]

    for param in model.parameters():
        param.register_post_accumulate_grad_hook(step_now)
    for step in range(5):
        _loss(model, step).backward()
        _loss(other, step).backward()
        for optimizer in apart:
            optimizer.step()
            optimizer.zero_grad()
    assert all(torch.equal(a, b) for a, b in zip(_weights(model), _weights(other), strict=True))
    assert all(param.grad is None for param in model.parameters())


def test_step_hooks_run_around_every_step() -> None:
    params = parameters([(6, 7)])
    optimizer = Shampoo(params, **member("shampoo_adam"))
    seen: list[tuple[str, bool]] = []
    start = params[0].detach().clone()

    def note(when: str) -> Callable[..., None]:
        return lambda *_: seen.append((when, torch.equal(params[0].detach(), start)))

    optimizer.register_step_pre_hook(note("before"))
    handle = optimizer.register_step_post_hook(note("after"))
    train(optimizer, params, range(1))
    assert seen == [("before", True), ("after", False)]
    handle.remove()
    train(optimizer, params, range(1))
    assert [when for when, _ in seen] == ["before", "after", "before"]


def test_zero_grad_and_clipping_are_as_in_any_optimizer() -> None:
    model = _model()
    optimizer = Shampoo(model.parameters(), **member("kl"))
    _loss(model, 0).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    assert all(param.grad is not None and not param.grad.any() for param in model.parameters())
    optimizer.zero_grad()
    assert all(param.grad is None for param in model.parameters())
    before = _weights(model)
    optimizer.step()  # without gradients
    assert all(torch.equal(a, b) for a, b in zip(_weights(model), before, strict=True))


def test_named_parameters_are_accepted() -> None:
    optimizer = Shampoo(_model().named_parameters())
    assert optimizer.param_groups[0]["param_names"] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    optimizer.load_state_dict(optimizer.state_dict())


RATES_OF_ADAM = (1e-2, 3e-2, 1e-1)


@functools.cache
def _losses_of_adam() -> list[float]:
    return [_loss_after_training(torch.optim.AdamW, lr=lr) for lr in RATES_OF_ADAM]


def _loss_after_training(kind: type[torch.optim.AdamW | Shampoo], **config: Any) -> float:
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 4))
    for param in model.parameters():
        nn.init.normal_(param, std=0.2, generator=generator)
    inputs = torch.randn(512, 16, generator=generator) * torch.logspace(-1.5, 0.5, 16)
    targets = torch.tanh(inputs @ torch.randn(16, 4, generator=generator))
    optimizer = kind(model.parameters(), **config)
    for _ in range(75):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    return nn.functional.mse_loss(model(inputs), targets).item()


@pytest.mark.slow
@pytest.mark.parametrize(("preconditioner", "lr"), [("shampoo", 3e-2), ("soap", 1e-1), ("kl", 3e-2)])
def test_an_ill_conditioned_network_is_trained_further_than_by_adam_at_its_best_rate(
    preconditioner: Any, lr: float
) -> None:
    ours = _loss_after_training(Shampoo, lr=lr, preconditioner=preconditioner)
    assert ours < min(_losses_of_adam()), (ours, _losses_of_adam())
