"""Settings under which the optimizer is another known method, and the properties grafting promises."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from shampoo import Shampoo
from tests.support.shampoo.reference.members import newton_schulz
from tests.support.shampoo.settings import DEFAULTS, SHAPES, gradients_like, parameters, settings, train

NEVER = 10**6
GRAFTED = ("sgd", "adagrad", "rmsprop", "adam")

# Ours, the peer, and its settings; lr is 0.01 on both sides.
TORCH_METHODS: dict[str, tuple[dict[str, Any], type[torch.optim.Optimizer], dict[str, Any]]] = {
    "adam": ({}, torch.optim.Adam, {}),
    "adamw": ({"weight_decay": 0.1}, torch.optim.AdamW, {"weight_decay": 0.1}),
    "adamw_betas": (
        {"weight_decay": 0.3, "betas": (0.8, 0.95), "grafting_beta2": 0.9, "grafting_epsilon": 1e-3},
        torch.optim.AdamW,
        {"weight_decay": 0.3, "betas": (0.8, 0.9), "eps": 1e-3},
    ),
    "adam_without_averaging": ({"betas": (0.0, 0.99)}, torch.optim.Adam, {"betas": (0.0, 0.99)}),
    "adam_l2": (
        {"weight_decay": 0.1, "weight_decay_type": "l2", "betas": (0.8, 0.95)},
        torch.optim.Adam,
        {"weight_decay": 0.1, "betas": (0.8, 0.95)},
    ),
    "adamw_independent": (
        # The share λ·lr/peak_lr of the weights is AdamW's lr·λ' for λ' = λ/peak_lr.
        {"weight_decay": 0.001, "weight_decay_type": "independent"},
        torch.optim.AdamW,
        {"weight_decay": 0.1},
    ),
    "sgd": ({"grafting": "sgd", "betas": (0.0, 0.999)}, torch.optim.SGD, {}),
    "sgd_nesterov": (
        {
            "grafting": "sgd",
            "betas": (0.0, 0.999),
            "momentum": 0.9,
            "nesterov": True,
            "weight_decay": 0.01,
            "weight_decay_type": "l2",
        },
        torch.optim.SGD,
        {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    ),
    "sgd_momentum": (
        {"grafting": "sgd", "betas": (0.0, 0.999), "momentum": 0.9},
        torch.optim.SGD,
        {"momentum": 0.9},
    ),
    "rmsprop": (
        {"grafting": "rmsprop", "betas": (0.0, 0.999), "grafting_beta2": 0.99},
        torch.optim.RMSprop,
        {"alpha": 0.99},
    ),
    "rmsprop_momentum": (
        {
            "grafting": "rmsprop",
            "betas": (0.0, 0.95),
            "momentum": 0.8,
            "weight_decay": 0.1,
            "weight_decay_type": "l2",
        },
        torch.optim.RMSprop,
        {"alpha": 0.95, "momentum": 0.8, "weight_decay": 0.1},
    ),
    "adagrad": (
        {"grafting": "adagrad", "betas": (0.0, 0.999), "grafting_epsilon": 1e-10},
        torch.optim.Adagrad,
        {"eps": 1e-10},
    ),
    "adagrad_l2": (
        {
            "grafting": "adagrad",
            "betas": (0.0, 0.999),
            "grafting_epsilon": 1e-10,
            "weight_decay": 0.1,
            "weight_decay_type": "l2",
        },
        torch.optim.Adagrad,
        {"eps": 1e-10, "weight_decay": 0.1},
    ),
}


def _require_same_training(
    ours: dict[str, Any],
    peer: type[torch.optim.Optimizer],
    theirs: dict[str, Any],
    shapes: list[tuple[int, ...]],
    tolerance: float = 1e-12,
) -> None:
    params, expected = parameters(shapes), parameters(shapes)
    train(Shampoo(params, **ours), params, range(15))
    train(peer(expected, lr=0.01, foreach=False, **theirs), expected, range(15))  # type: ignore[call-arg]
    for param, other in zip(params, expected, strict=True):
        torch.testing.assert_close(param, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("method", TORCH_METHODS)
def test_before_preconditioning_starts_it_is_the_grafted_method(method: str) -> None:
    ours, peer, theirs = TORCH_METHODS[method]
    config = settings(start_preconditioning_step=NEVER, **ours)
    _require_same_training(config, peer, theirs, list(SHAPES.values()))


@pytest.mark.parametrize("method", TORCH_METHODS)
def test_without_a_preconditioner_it_is_the_grafted_method_in_every_step(method: str) -> None:
    ours, peer, theirs = TORCH_METHODS[method]
    _require_same_training(settings(preconditioner="none", **ours), peer, theirs, list(SHAPES.values()))


@pytest.mark.parametrize("method", [name for name in TORCH_METHODS if "adam" in name])
def test_soap_in_the_identity_basis_is_adam(method: str) -> None:
    ours, peer, theirs = TORCH_METHODS[method]
    ours = dict(ours)
    if "grafting_beta2" in ours:
        ours["betas"] = (ours["betas"][0], ours.pop("grafting_beta2"))
    config = settings(preconditioner="soap", start_preconditioning_step=NEVER, **ours)
    _require_same_training(config, peer, theirs, list(SHAPES.values()))


def test_ungrafted_before_preconditioning_starts_it_is_sgd_on_matrices() -> None:
    config = settings(grafting="none", betas=(0.0, 0.999), start_preconditioning_step=NEVER)
    matrices = [shape for shape in SHAPES.values() if len(shape) > 1]
    _require_same_training({**config, "momentum": 0.9}, torch.optim.SGD, {"momentum": 0.9}, matrices)


@pytest.mark.parametrize("preconditioner", ["shampoo", "soap", "kl", "spectral"])
def test_ungrafted_vectors_take_adams_step(preconditioner: str) -> None:
    config = settings(preconditioner=preconditioner, grafting="none", weight_decay=0.1)
    vectors = [(13,), (1, 7), (5, 1, 1), ()]
    _require_same_training(config, torch.optim.AdamW, {"weight_decay": 0.1}, vectors)


def test_ungrafted_vectors_of_summed_statistics_take_adagrads_step() -> None:
    config = settings(grafting="none", betas=(0.0, 1.0), grafting_epsilon=1e-10)
    _require_same_training(config, torch.optim.Adagrad, {"eps": 1e-10}, [(13,), ()])


@pytest.mark.parametrize("preconditioner", ["soap", "spectral"])
def test_without_diagonal_factors_long_sides_are_left_whole_in_one_way(preconditioner: str) -> None:
    shapes = [(12, 5), (5, 12), (9, 4, 5)]
    diagonal, one_sided = parameters(shapes), parameters(shapes)
    for params, method in ((diagonal, "diagonal"), (one_sided, "one_sided")):
        config = settings(preconditioner=preconditioner, max_preconditioner_dim=8, large_dim_method=method)
        train(Shampoo(params, **config), params, range(15))
    for param, other in zip(diagonal, one_sided, strict=True):
        assert torch.equal(param, other)


MUON_SHAPES = [(12, 5), (5, 12), (16, 16), (3, 40)]
MUON = {"betas": (0.95, 0.999), "beta3": 0.9025, "max_preconditioner_dim": 64, "weight_decay": 0.1}


@pytest.mark.parametrize("scale", ["match_rms_adamw", "original"])
def test_spectral_is_muon(scale: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # torch's orthogonalisation, which is in bfloat16 always, by the same iteration in float64; see the next test.
    def orthogonalise(gradient: Tensor, *_: Any) -> Tensor:
        return newton_schulz(gradient)

    monkeypatch.setattr("torch.optim._muon._zeropower_via_newtonschulz", orthogonalise)
    params, expected = parameters(MUON_SHAPES), parameters(MUON_SHAPES)
    train(Shampoo(params, **settings(preconditioner="spectral", adjust_lr_fn=scale, **MUON)), params, range(30))
    train(torch.optim.Muon(expected, lr=0.01, weight_decay=0.1, adjust_lr_fn=scale), expected, range(30))
    for param, other in zip(params, expected, strict=True):
        torch.testing.assert_close(param, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("scale", ["match_rms_adamw", "original"])
def test_spectral_is_muon_within_its_bfloat16(scale: str) -> None:
    # bfloat16 rounds at 2⁻⁸ = 0.4 %; five iterations of a steep polynomial amplify that about tenfold at worst.
    params, expected = parameters(MUON_SHAPES, torch.float32), parameters(MUON_SHAPES, torch.float32)
    start = [param.detach().clone() for param in params]
    train(Shampoo(params, **settings(preconditioner="spectral", adjust_lr_fn=scale, **MUON)), params, range(10))
    train(torch.optim.Muon(expected, lr=0.01, weight_decay=0.1, adjust_lr_fn=scale), expected, range(10))
    for param, other, at in zip(params, expected, start, strict=True):
        assert (param - other).norm() < 0.04 * (other - at).norm()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
@pytest.mark.parametrize("grafting", GRAFTED)
def test_the_grafted_method_gives_every_block_its_step_length(
    grafting: str, dtype: torch.dtype, tolerance: float
) -> None:
    # The first preconditioned step against the step the grafted method takes from the same state, block by block:
    # six of the matrix, and one of each tensor.
    shapes = [(16, 24), (5, 6, 7), (3, 5, 4, 6)]
    config = settings(grafting=grafting, betas=(0.9, 0.99), precondition_frequency=10, stagger_refresh=False)
    moves = []
    for start in (10, NEVER):
        params = parameters(shapes, dtype)
        optimizer = Shampoo(params, **{**config, "start_preconditioning_step": start})
        train(optimizer, params, range(9))
        gradients = gradients_like(params, step=9)
        for param, gradient in zip(params, gradients, strict=True):
            # From zero, where weights hold the step without rounding.
            param.data.zero_()
            param.grad = gradient
        optimizer.step()
        matrix, *tensors = (param.detach() for param in params)
        moves.append([*matrix.reshape(2, 8, 3, 8).transpose(1, 2).reshape(6, 8, 8), *tensors])
    for moved, expected in zip(*moves, strict=True):
        torch.testing.assert_close(moved.norm(), expected.norm(), rtol=tolerance, atol=0)
        assert not torch.allclose(moved, expected, rtol=0.1)


@pytest.mark.parametrize("grafting", GRAFTED)
def test_a_vector_always_takes_the_grafted_step(grafting: str) -> None:
    outcomes = []
    for start in (1, NEVER):
        params = parameters([(13,), (1, 7), (5, 1, 1), ()])
        config = settings(grafting=grafting, precondition_frequency=1, start_preconditioning_step=start)
        train(Shampoo(params, **config), params, range(10))
        outcomes.append(params)
    assert all(torch.equal(a, b) for a, b in zip(*outcomes, strict=True))


# ε = 1e-14 lies far below the smallest eigenvalue of the gradient's Gram matrices, about 1e-6 of the largest.
MEMORYLESS = {
    "lr": 1.0,
    "betas": (0.0, 0.0),
    "epsilon": 1e-14,
    "max_preconditioner_dim": 64,
    "precondition_frequency": 1,
}


@pytest.mark.parametrize(
    ("choices", "length", "tolerance"),
    [
        # (G Gᵀ)^(−1/4) G (Gᵀ G)^(−1/4) = U Vᵀ for G = U S Vᵀ.
        ({"grafting": "none"}, 1.0, 1e-6),
        ({"grafting": "none", "epsilon": 1e-12, "epsilon_type": "absolute", "solver": "eigh64"}, 1.0, 1e-6),
        ({"grafting": "none", "pseudo_inverse": True}, 1.0, 1e-6),
        # One factor has the whole exponent: (G Gᵀ)^(−1/2) G.
        ({"grafting": "none", "one_sided": True}, 1.0, 1e-6),
        # S_1 = G Gᵀ/n makes S_2 = Gᵀ S_1⁻¹ G/n the identity: S_1^(−1/2) G = √n U Vᵀ.
        ({"preconditioner": "kl", "betas": (0.0, 0.5), "use_bias_correction": True}, math.sqrt(12), 1e-6),
        # In its eigenbases the gradient is S, and Adam without memory steps by the signs; an eigenvector's error of
        # about 1e-13, beside S, is divided by εg = 1e-8.
        ({"preconditioner": "soap", "epsilon": DEFAULTS["epsilon"], "start_preconditioning_step": 1}, 1.0, 1e-4),
    ],
    ids=["shampoo", "absolute", "pseudo_inverse", "one_sided", "kl", "soap"],
)
def test_without_memory_the_first_step_is_the_orthogonalised_gradient(
    choices: dict[str, Any], length: float, tolerance: float
) -> None:
    params = parameters([(12, 12)])
    before = params[0].detach().clone()
    optimizer = Shampoo(params, **settings(**{**MEMORYLESS, **choices}))
    (params[0].grad,) = gradients_like(params, step=0)
    U, _, Vh = torch.linalg.svd(params[0].grad)
    optimizer.step()
    torch.testing.assert_close(before - params[0].detach(), length * U @ Vh, rtol=0, atol=tolerance)


@pytest.mark.parametrize("solver", ["eigh", "eigh64"])
@pytest.mark.parametrize("shape", [(12, 12), (12, 5), (5, 12)])
def test_without_memory_every_step_of_shampoo_is_the_orthogonalised_gradient(
    shape: tuple[int, int], solver: str
) -> None:
    # The null space of the longer side's factor has a root of 1e-14^(-1/4) = 3e3, and the gradient no part in it.
    params = parameters([shape])
    optimizer = Shampoo(params, **settings(**MEMORYLESS, grafting="none", solver=solver))
    for step in range(4):
        before = params[0].detach().clone()
        (params[0].grad,) = gradients_like(params, step=step)
        U, _, Vh = torch.linalg.svd(params[0].grad, full_matrices=False)
        optimizer.step()
        torch.testing.assert_close(before - params[0].detach(), U @ Vh, rtol=0, atol=1e-6)


def test_raw_shampoo_does_not_depend_on_the_gradients_scale() -> None:
    outcomes = []
    for scale in (1.0, 1e-6, 1e6):
        params = parameters(list(SHAPES.values()))
        # The vector takes Adam's step, whose ε is not to count.
        config = settings(grafting="none", precondition_frequency=1, grafting_epsilon=1e-20)
        optimizer = Shampoo(params, **config)
        start = [param.detach().clone() for param in params]
        for step in range(5):
            for param, gradient in zip(
                params, gradients_like(parameters(list(SHAPES.values())), step=step), strict=True
            ):
                param.grad = gradient * scale
            optimizer.step()
        outcomes.append([param.detach() - at for param, at in zip(params, start, strict=True)])
    for other in outcomes[1:]:
        for moved, expected in zip(other, outcomes[0], strict=True):
            torch.testing.assert_close(moved, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("preconditioner", ["shampoo", "soap", "kl", "spectral", "none"])
def test_decoupled_decay_never_enters_momentum(preconditioner: str, momentum: float) -> None:
    (param,) = params = parameters([(6, 6)])
    start = param.detach().clone()
    config = settings(preconditioner=preconditioner, lr=0.1, weight_decay=1.0, momentum=momentum)
    optimizer = Shampoo(params, **config)
    for _ in range(5):
        param.grad = torch.zeros_like(param)
        optimizer.step()
    torch.testing.assert_close(param.detach(), start * 0.9**5)


def test_independent_decay_follows_the_schedule_but_not_the_peak() -> None:
    outcomes = []
    for lr in (0.1, 0.01):
        (param,) = params = parameters([(6, 6)])
        # The group's own learning rate counts, not the constructor's.
        groups = [{"params": params, "lr": lr}]
        optimizer = Shampoo(groups, **settings(lr=7.0, weight_decay=0.2, weight_decay_type="independent"))
        for factor in (1.0, 0.5):
            optimizer.param_groups[0]["lr"] = lr * factor
            param.grad = torch.zeros_like(param)
            optimizer.step()
        outcomes.append(param.detach() / parameters([(6, 6)])[0].detach())
    torch.testing.assert_close(outcomes[0], torch.full((6, 6), 0.8 * 0.9, dtype=torch.float64))
    torch.testing.assert_close(outcomes[0], outcomes[1])


@pytest.mark.parametrize("shape", [(16, 12), (5, 9, 7), (3, 5, 4, 6)])
@pytest.mark.parametrize("preconditioner", ["shampoo", "soap"])
def test_factors_of_bfloat16_gradients_accumulate_in_float32(preconditioner: str, shape: tuple[int, ...]) -> None:
    params = parameters([shape], torch.bfloat16)
    optimizer = Shampoo(params, **settings(preconditioner=preconditioner, max_preconditioner_dim=max(shape)))
    expected = [torch.zeros(d, d, dtype=torch.float64) for d in shape]
    for step in range(50):
        (gradient,) = gradients_like(params, step=step)
        params[0].grad = gradient
        optimizer.step()
        for mode, A in enumerate(expected):
            X = gradient.double().movedim(mode, 0).flatten(start_dim=1)
            A.mul_(0.999).add_(X @ X.T, alpha=0.001)
    for mode, A in enumerate(expected):
        factor = optimizer.state[params[0]][f"factor{mode}.0"]
        assert factor.dtype == torch.float32
        # Either triangle may be all that is kept.
        deviation = torch.tril(factor[0].double() - A).norm() / torch.tril(A).norm()
        assert deviation < 1e-6
