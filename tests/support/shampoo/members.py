"""The members of the family that every property must hold for: each a row of keyword arguments of `Shampoo`.

A test asks for rows by name, so that a new member is a new row here and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from shampoo.hyperparameters import Hyperparameters, unused

T = TypeVar("T")

# Small blocks and a short refresh period, so that a few steps cover every phase. Left out if a member does not use
# them.
SMALL: dict[str, Any] = {"lr": 0.01, "max_preconditioner_dim": 8, "precondition_frequency": 4}

_LOW_PRECISION = {"int8": {"state_dtype": "int8"}, "int4": {"state_dtype": "int4"}}
_MOMENTUM = {"momentum": 0.9, "nesterov": True}
_SOLVERS = ("eigh", "eigh64", "qr", "cholesky_qr")

SHAMPOO: dict[str, dict[str, Any]] = {
    **{f"shampoo_{grafting}": {"grafting": grafting} for grafting in ("none", "sgd", "adagrad", "rmsprop", "adam")},
    **{f"shampoo_by_{solver}": {"solver": solver} for solver in (*_SOLVERS, "coupled_newton")},
    **{f"shampoo_{name}": config for name, config in _LOW_PRECISION.items()},
    "shampoo_bfloat16": {"state_dtype": "bfloat16"},
    "shampoo_one_sided": {"one_sided": True},
    "shampoo_diagonal": {"large_dim_method": "diagonal"},
    "shampoo_short_sides": {"large_dim_method": "one_sided"},
    "shampoo_pseudo_inverse": {"exponent_override": 0.5, "pseudo_inverse": True, "betas": (0.9, 0.9)},
    "shampoo_root_free": {"exponent_override": 1.0, "epsilon": 1e-3},
    "shampoo_absolute": {"grafting": "none", "epsilon_type": "absolute", "epsilon": 1e-3},
    "shampoo_sums": {"grafting": "adagrad", "betas": (0.9, 1.0)},
    "shampoo_momentum": {"grafting": "sgd", "betas": (0.0, 0.999), **_MOMENTUM},
    "shampoo_nadam": {"beta3": 0.81},
    "shampoo_tolerant": {"refresh_tolerance": 0.3},
    "shampoo_bfloat16_products": {"product_dtype": "bfloat16"},
    "shampoo_together": {"stagger_refresh": False, "statistics_frequency": 2},
}
SOAP: dict[str, dict[str, Any]] = {
    "soap": {"preconditioner": "soap"},
    **{f"soap_by_{solver}": {"preconditioner": "soap", "solver": solver} for solver in _SOLVERS},
    **{f"soap_{name}": {"preconditioner": "soap", **config} for name, config in _LOW_PRECISION.items()},
    "soap_one_sided": {"preconditioner": "soap", "one_sided": True},
    "soap_momentum": {"preconditioner": "soap", "betas": (0.0, 0.95), "shampoo_beta": 0.9, **_MOMENTUM},
    "soap_nadam": {"preconditioner": "soap", "beta3": 0.81, "shampoo_beta": 1.0},
    "soap_bfloat16_products": {"preconditioner": "soap", "product_dtype": "bfloat16"},
    "soap_tolerant": {"preconditioner": "soap", "refresh_tolerance": 0.3},
}
KL: dict[str, dict[str, Any]] = {
    "kl": {"preconditioner": "kl"},
    **{f"kl_by_{solver}": {"preconditioner": "kl", "solver": solver} for solver in ("eigh", "cholesky_qr")},
    **{f"kl_{name}": {"preconditioner": "kl", **config} for name, config in _LOW_PRECISION.items()},
    "kl_one_sided": {"preconditioner": "kl", "one_sided": True},
    "kl_diagonal": {"preconditioner": "kl", "large_dim_method": "diagonal"},
    "kl_absolute": {"preconditioner": "kl", "epsilon_type": "absolute", "epsilon": 1e-3},
    "kl_momentum": {"preconditioner": "kl", "betas": (0.0, 0.95), **_MOMENTUM},
    "kl_bfloat16_products": {"preconditioner": "kl", "product_dtype": "bfloat16"},
}
SPECTRAL: dict[str, dict[str, Any]] = {
    "spectral": {"preconditioner": "spectral"},
    "spectral_original": {"preconditioner": "spectral", "adjust_lr_fn": "original", "betas": (0.95, 0.999)},
    "spectral_bfloat16_products": {"preconditioner": "spectral", "product_dtype": "bfloat16"},
    "spectral_swan": {"preconditioner": "spectral", "standardize_rows": True, "betas": (0.0, 0.999)},
    "spectral_rows": {"preconditioner": "spectral", "matrix_norm": "rows"},
    "spectral_rank": {"preconditioner": "spectral", "rank": 3, "betas": (0.9, 0.95)},
    "spectral_momentum": {"preconditioner": "spectral", "betas": (0.0, 0.999), **_MOMENTUM},
}
PLAIN: dict[str, dict[str, Any]] = {
    "adam": {"preconditioner": "none"},
    **{f"plain_{method}": {"preconditioner": "none", "grafting": method} for method in ("sgd", "adagrad", "rmsprop")},
    "plain_momentum": {"preconditioner": "none", "grafting": "sgd", "betas": (0.0, 0.999), **_MOMENTUM},
}

WITH_FACTORS = {**SHAMPOO, **SOAP, **KL}
MEMBERS = {**WITH_FACTORS, **SPECTRAL, **PLAIN}

REPRESENTATIVES = (
    "shampoo_none",
    "shampoo_adam",
    "shampoo_by_coupled_newton",
    "shampoo_int4",
    "shampoo_tolerant",
    "soap",
    "soap_int8",
    "kl",
    "kl_int8",
    "spectral",
    "adam",
    "plain_momentum",
)
"""One member of each kind, for properties that cannot depend on more."""


MEET_ALL = frozenset(
    {name for name, config in MEMBERS.items() if {"state_dtype", "product_dtype"} & config.keys()} | {*REPRESENTATIVES}
)
"""Representatives, and members with a precision of their own: these are combined with every value of a test."""


def crossed(values: Sequence[T], names: Iterable[str] = tuple(MEMBERS)) -> list[tuple[str, T]]:
    """Combinations of members and values, for a property on which a value may have a different effect in each kind of
    member.

    Each member outside `MEET_ALL`, which differs in only one argument, is combined with one value, in turns: no member
    and no value is left out.
    """
    names = list(names)
    others = [name for name in names if name not in MEET_ALL]
    every = [(name, value) for name in names if name in MEET_ALL for value in values]
    return every + [(name, values[number % len(values)]) for number, name in enumerate(others)]


def member(name: str, **changes: Any) -> dict[str, Any]:
    """Keyword arguments of a member with small blocks and periods, and those of these changes that it uses.

    Not for changes that a test is about: add these after the call, `{**member(name), **changes}`.
    """
    config = {**SMALL, **changes, **MEMBERS[name]}
    no_use = set(unused(config.get("preconditioner", "shampoo")))
    if config.get("state_dtype", "float32") != "float32":
        no_use.add("statistics_frequency")
    return {key: value for key, value in config.items() if key not in no_use}


def _of_each_state() -> Iterator[str]:
    met = []
    for name in MEMBERS:
        structure = Hyperparameters(**member(name)).structure
        if structure not in met:
            met.append(structure)
            yield name


OF_EACH_STATE = tuple(_of_each_state())
"""The first member for each set of tensors in the state: for properties of shared code that treats the state as a
whole, such as copying. A row with a new kind of state is included automatically."""

_TIMING = {"stagger_refresh", "statistics_frequency", "start_preconditioning_step", "refresh_tolerance"}
OF_EACH_TIMING = (
    *OF_EACH_STATE,
    *(name for name, config in MEMBERS.items() if _TIMING & config.keys() and name not in OF_EACH_STATE),
)
"""The same, and every member with its own timing: for properties of phases and step counts."""
