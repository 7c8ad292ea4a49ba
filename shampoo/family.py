"""The members of the family: how often each refreshes unless told otherwise, and which hyperparameters it uses."""

from __future__ import annotations

from collections.abc import Mapping

DEFAULT_REFRESH_PERIOD: Mapping[str, int] = {"shampoo": 50, "soap": 10, "kl": 10, "spectral": 1, "none": 1}

# What the members have in common, and what each of them uses beside that.
_SHARED = (
    frozenset({"lr", "betas", "beta3", "weight_decay", "weight_decay_type", "momentum", "nesterov"})
    | frozenset({"preconditioner", "use_bias_correction", "low_precision_weights", "grafting_epsilon", "distributed"})
    | frozenset({"communication_dtype", "num_ranks_per_group", "reduce_gradients"})
)
_KRONECKER = _SHARED | {
    "solver",
    "max_preconditioner_dim",
    "large_dim_method",
    "one_sided",
    "precondition_frequency",
    "start_preconditioning_step",
    "statistics_frequency",
    "stagger_refresh",
    "refresh_tolerance",
    "state_dtype",
    "product_dtype",
    "max_failed_refreshes",
}
USED: Mapping[str, frozenset[str]] = {
    "shampoo": _KRONECKER
    | {"epsilon", "epsilon_type", "grafting", "grafting_beta2", "exponent_override", "pseudo_inverse"},
    "soap": _KRONECKER | {"shampoo_beta", "grafting"},
    "kl": _KRONECKER | {"epsilon", "epsilon_type", "grafting"},
    "spectral": _SHARED | {"grafting", "max_preconditioner_dim", "large_dim_method", "adjust_lr_fn", "product_dtype"},
    "none": _SHARED | {"grafting", "grafting_beta2"},
}
