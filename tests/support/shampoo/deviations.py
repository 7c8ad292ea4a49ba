"""Deviations of the optimizer from the textbook implementation in `reference`, and their settings.

A deviation is relative to how far the reference has moved a tensor from its start, so it is free of lr.
`test_against_reference` says which deviations rounding explains, and which settings are ill-conditioned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from shampoo import Shampoo
from shampoo.hyperparameters import NAMES, Hyperparameters
from tests.support.shampoo.reference.shampoo import ReferenceShampoo
from tests.support.shampoo.settings import gradients_like, pairwise, parameters, settings

Choices = dict[str, dict[str, Any]]

DECAYS: Choices = {
    "undecayed": {},
    "decoupled": {"weight_decay": 0.1},
    "l2": {"weight_decay": 0.1, "weight_decay_type": "l2"},
    "independent": {"weight_decay": 0.01, "weight_decay_type": "independent"},
}
AVERAGES: Choices = {
    "adam": {},
    "memoryless": {"betas": (0.0, 0.99)},
    "nadam": {"beta3": 0.81},
    "short": {"betas": (0.8, 0.95), "use_bias_correction": False},
}
MOMENTUM: Choices = {
    "direct": {},
    "momentum": {"momentum": 0.9},
    "nesterov": {"momentum": 0.5, "nesterov": True},
}
SCHEDULES: Choices = {
    "default_start": {},
    "every_step": {"precondition_frequency": 1},
    "late_start": {"start_preconditioning_step": 6, "precondition_frequency": 3},
    "early_start": {"start_preconditioning_step": 2, "precondition_frequency": 5},
    "rare_statistics": {"statistics_frequency": 3, "start_preconditioning_step": 7},
    "start_of_rare_statistics": {"statistics_frequency": 3},
}
STAGGER: Choices = {"staggered": {}, "at_once": {"stagger_refresh": False}}
# The reference has no tolerance; this one makes the optimizer measure the error of a basis, but never keep one.
TOLERANCE: Choices = {"unasked": {}, "measured": {"refresh_tolerance": 1e-14}}
GEOMETRY: Choices = {
    "blocks": {},
    "tiny_blocks": {"max_preconditioner_dim": 4},
    "long_diagonal": {"large_dim_method": "diagonal"},
    "long_identity": {"large_dim_method": "one_sided"},
    "one_sided": {"one_sided": True},
    "one_sided_whole": {"one_sided": True, "max_preconditioner_dim": 64},
}
WHOLE: Choices = {"whole": {"max_preconditioner_dim": 18}}
DAMPING: Choices = {
    "relative": {},
    "relative_large": {"epsilon": 1e-3},
    "absolute": {"epsilon": 1e-4, "epsilon_type": "absolute"},
}
BASIS_SOLVERS: Choices = {solver: {"solver": solver} for solver in ("eigh64", "eigh", "qr", "cholesky_qr")}

OPTIONS: dict[str, dict[str, Choices]] = {
    "shampoo": {
        "grafting": {
            **{method: {"grafting": method} for method in ("none", "sgd", "adagrad", "rmsprop", "adam")},
            "adam_beta2": {"grafting": "adam", "grafting_beta2": 0.9, "grafting_epsilon": 1e-3},
        },
        "geometry": {**GEOMETRY, **WHOLE},
        "schedule": SCHEDULES,
        "averages": {**AVERAGES, "sums": {"betas": (0.9, 1.0)}},
        "damping": {
            **DAMPING,
            "pseudo": {"epsilon": 1e-10, "pseudo_inverse": True},
            "pseudo_absolute": {"epsilon": 1e-8, "epsilon_type": "absolute", "pseudo_inverse": True},
        },
        "solver": {**BASIS_SOLVERS, "newton": {"solver": "coupled_newton"}},
        "decay": DECAYS,
        "momentum": MOMENTUM,
        "exponent": {"order": {}, "half": {"exponent_override": 0.5}, "root_free": {"exponent_override": 1.0}},
        "stagger": STAGGER,
        "tolerance": TOLERANCE,
    },
    "soap": {
        "geometry": {**GEOMETRY, **WHOLE},
        # See the top of the file for a start at the first step, and `test_soap_follows_it_from_the_first_gradient`.
        "schedule": {
            **SCHEDULES,
            "default_start": {"grafting_epsilon": 1e-3},
            "every_step": {"start_preconditioning_step": 2, "precondition_frequency": 1},
        },
        "solver": BASIS_SOLVERS,
        "averages": AVERAGES,
        "factors": {"beta2": {}, "faster": {"shampoo_beta": 0.9}, "sums": {"shampoo_beta": 1.0}},
        "decay": DECAYS,
        "momentum": MOMENTUM,
        "epsilon": {"small": {}, "large": {"grafting_epsilon": 1e-3}},
        "stagger": STAGGER,
        "tolerance": TOLERANCE,
    },
    "kl": {
        "geometry": GEOMETRY,
        "schedule": {name: SCHEDULES[name] for name in ("default_start", "every_step")},
        "solver": BASIS_SOLVERS,
        "averages": AVERAGES,
        # The first statistics are from one gradient, so there is always a null eigenvalue.
        "damping": {**DAMPING, "relative": {"epsilon": 1e-5}},
        "decay": DECAYS,
        "momentum": MOMENTUM,
        "stagger": STAGGER,
        "tolerance": TOLERANCE,
    },
    "spectral": {
        "averages": {**AVERAGES, "muon": {"betas": (0.95, 0.99), "beta3": 0.9025}},
        "decay": DECAYS,
        "momentum": MOMENTUM,
        "scale": {"rms": {}, "original": {"adjust_lr_fn": "original"}},
        "geometry": {**WHOLE, "blocks": {}, "long_whole": {"large_dim_method": "one_sided"}},
        "norm": {
            "spectral": {},
            "standardized": {"standardize_rows": True},
            "rows": {"matrix_norm": "rows"},
            "leading": {"rank": 1},
            "more": {"rank": 4, "rest_scale": 0.5, "grafting_epsilon": 1e-3},
            "all": {"rank": 100},
        },
    },
    "none": {
        "grafting": {method: {"grafting": method} for method in ("sgd", "adagrad", "rmsprop", "adam")},
        "averages": {**AVERAGES, "sums": {"betas": (0.9, 1.0)}},
        "decay": DECAYS,
        "momentum": MOMENTUM,
    },
}


def combinations(member: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Settings of a member in which any two choices of two options meet, by their names."""
    for name, choices in pairwise(OPTIONS[member]):
        config = settings(preconditioner=member, **choices)
        if member in ("shampoo", "soap", "kl") and "precondition_frequency" not in choices:
            config["precondition_frequency"] = 4
        averaged = config["grafting"] in ("rmsprop", "adam")
        if averaged and config["betas"][1] == 1 and config["grafting_beta2"] is None:
            config["grafting_beta2"] = 0.99
        if config["solver"] == "coupled_newton" and config["pseudo_inverse"]:
            # This one has no eigenvalues to leave out.
            config["solver"] = None
        if config["solver"] == "coupled_newton":
            config["refresh_tolerance"] = 0.0  # nor a basis to measure
        if choices.get("max_preconditioner_dim") == 18 and (
            member == "soap" or config["solver"] in ("qr", "cholesky_qr")
        ):
            # Not from the first gradient of 11×12, because qr would then start from a factor with a null dimension.
            config["start_preconditioning_step"] = config["start_preconditioning_step"] or 7
        yield f"{member}-{name}", config


# Two gradients give every factor full rank.
SECOND_STEP: dict[str, Any] = {"start_preconditioning_step": 2}
# The null eigenvalue of a matrix's first gradient is rounding, 1e-7 of the largest: a tenth of ε = 1e-6.
DAMPED: dict[str, Any] = {"epsilon": 1e-4}

FLOAT32: dict[str, tuple[dict[str, Any], float]] = {
    # For each: settings, and the largest deviation over 30 steps that rounding in float32 explains.
    "shampoo": (DAMPED, 2e-5),
    "soap": ({"preconditioner": "soap", **SECOND_STEP}, 2e-5),
    "soap_eigh64": ({"preconditioner": "soap", "solver": "eigh64", **SECOND_STEP}, 2e-5),
    "soap_cholesky_qr": ({"preconditioner": "soap", "solver": "cholesky_qr", **SECOND_STEP}, 2e-5),
    # Here from the first gradient, so with more damping; and the steps of subspace iteration start from the null
    # eigenvector as float32 represents it.
    "kl_eigh64": ({"preconditioner": "kl", "solver": "eigh64", "epsilon": 1e-2}, 2e-5),
    "kl": ({"preconditioner": "kl", "epsilon": 1e-2}, 1e-4),
    "kl_cholesky_qr": ({"preconditioner": "kl", "solver": "cholesky_qr", "epsilon": 1e-2}, 1e-4),
    # Five iterations whose slope at zero is 3.4 each.
    "spectral": ({"preconditioner": "spectral"}, 1e-4),
    "swan": ({"preconditioner": "spectral", "standardize_rows": True, "betas": (0.0, 0.999)}, 1e-4),
    "rows": ({"preconditioner": "spectral", "matrix_norm": "rows"}, 2e-5),
    # Along the leading directions only rounding is left, and the same iterations enlarge it.
    "rank": ({"preconditioner": "spectral", "rank": 4, "betas": (0.9, 0.95)}, 1e-3),
    "none": ({"preconditioner": "none"}, 2e-5),
    **{
        f"shampoo_{solver}_{name}": ({"solver": solver, **condition}, 2e-5)
        for solver in ("eigh", "eigh64", "coupled_newton", "qr", "cholesky_qr")
        for name, condition in {"damped": DAMPED, "from_the_second_step": SECOND_STEP}.items()
    },
    # A pseudo-inverse does not see a null eigenvalue far below its threshold either.
    "shampoo_pseudo_inverse": ({"pseudo_inverse": True, **DAMPED}, 2e-5),
}


def deviation(
    config: dict[str, Any],
    shapes: Sequence[tuple[int, ...]],
    dtype: torch.dtype,
    num_steps: int = 14,
    *,
    scales: Sequence[Sequence[float | None]] | None = None,
    device: str = "cpu",
) -> float:
    """Largest difference from the reference after any step, as a share of how far that tensor has moved.

    Args:
        config: every keyword argument of `Shampoo`.
        num_steps: by default enough for each unit's first and second refresh, and for the third one of most, with every
            schedule here.
        scales: instead of `num_steps`, the factors by which each tensor's gradient is multiplied in each step; None: no
            gradient.
        device: where the optimizer steps, with the solver that is the default there if `config` names none.
    """
    at_home = parameters(shapes, dtype)
    params = [torch.nn.Parameter(param.detach().to(device)) for param in at_home]
    start = [param.detach().double().clone() for param in at_home]
    reference = ReferenceShampoo(at_home, {**config, "solver": solver_on(config, device)})
    optimizer = Shampoo(params, **config)
    worst = 0.0
    for step, row in enumerate([[1.0] * len(params)] * num_steps if scales is None else scales):
        for param, here in zip(params, at_home, strict=True):
            here.data.copy_(param.detach())
        gradients = [
            None if scale is None else gradient * scale
            for gradient, scale in zip(gradients_like(at_home, step=step), row, strict=True)
        ]
        for param, gradient in zip(params, gradients, strict=True):
            param.grad = None if gradient is None else gradient.to(device)
        optimizer.step()
        reference.step(gradients)
        for param, expected, at in zip(params, reference.weights, start, strict=True):
            difference = (param.detach().cpu().double() - expected).norm()
            if difference == 0:  # also if neither has moved, or there is nothing to move
                continue
            # A comparison with NaN would let it pass.
            worst = max(worst, (difference / (expected - at).norm()).nan_to_num(nan=torch.inf).item())
    return worst


def num_steps_of(config: dict[str, Any]) -> int:
    """The number of steps in which every unit is refreshed at the start, and then again from that basis at its phase.

    A third refresh does not differ from the second; `test_each_member_follows_the_reference_in_float32` has one.
    """
    h = Hyperparameters(**{name: value for name, value in config.items() if name in NAMES})
    if h.preconditioner in ("spectral", "none"):
        return 7  # all steps are alike; several, because averages and the weights carry an error on
    return max(7, h.first_refresh + h.refresh_period)


def solver_on(config: dict[str, Any], device: str) -> str:
    """The solver that `Shampoo` with these keyword arguments uses on the device; the reference uses that of the CPU."""
    known = {name: value for name, value in config.items() if name in NAMES}
    return Hyperparameters(**known).solver_on(torch.device(device).type)
