"""The arguments of `shampoo.Shampoo`, as its hyperparameters are declared.

Written by `python -m tests.support.shampoo.generate` from `shampoo/hyperparameters.py` and, what comes last, from
`shampoo/starting_values.py`: change them there.
"""

from __future__ import annotations

from collections.abc import Mapping

from search_spaces.arguments import LARGEST_INTEGER, Argument

SHAMPOO: Mapping[str, Argument] = {
    "lr": Argument(kind="float", low=0.0, default=0.0015),
    "betas": Argument(
        kind="pair",
        elements=(Argument(kind="float", low=0.0, high=1.0, open_high=True), Argument(kind="float", low=0.0, high=1.0)),
        default=(0.9, 0.999),
    ),
    "beta3": Argument(kind="float", low=0.0, high=1.0, open_high=True, optional=True),
    "shampoo_beta": Argument(kind="float", low=0.0, high=1.0, optional=True),
    "epsilon": Argument(kind="float", low=0.0, open_low=True, default=1e-06),
    "epsilon_type": Argument(kind="choice", choices=("relative", "absolute"), default="relative"),
    "weight_decay": Argument(kind="float", low=0.0, default=0.0),
    "weight_decay_type": Argument(kind="choice", choices=("decoupled", "l2", "independent"), default="decoupled"),
    "momentum": Argument(kind="float", low=0.0, high=1.0, open_high=True, default=0.0),
    "nesterov": Argument(kind="boolean", default=False),
    "preconditioner": Argument(kind="choice", choices=("shampoo", "soap", "kl", "spectral", "none"), default="shampoo"),
    "solver": Argument(kind="choice", choices=("eigh", "eigh64", "coupled_newton", "qr", "cholesky_qr"), optional=True),
    "max_preconditioner_dim": Argument(kind="integer", low=2, high=LARGEST_INTEGER, default=1024),
    "large_dim_method": Argument(kind="choice", choices=("blocking", "diagonal", "one_sided"), default="blocking"),
    "one_sided": Argument(kind="boolean", default=False),
    "precondition_frequency": Argument(kind="integer", low=1, high=LARGEST_INTEGER, optional=True),
    "start_preconditioning_step": Argument(kind="integer", low=1, high=LARGEST_INTEGER, optional=True),
    "statistics_frequency": Argument(kind="integer", low=1, high=LARGEST_INTEGER, optional=True),
    "stagger_refresh": Argument(kind="boolean", default=True),
    "refresh_tolerance": Argument(kind="float", low=0.0, high=1.0, open_high=True, default=0.0),
    "grafting": Argument(kind="choice", choices=("none", "sgd", "adagrad", "rmsprop", "adam"), optional=True),
    "grafting_beta2": Argument(kind="float", low=0.0, high=1.0, open_high=True, optional=True),
    "grafting_epsilon": Argument(kind="float", low=0.0, open_low=True, default=1e-08),
    "exponent_override": Argument(kind="float", low=0.0, open_low=True, optional=True),
    "pseudo_inverse": Argument(kind="boolean", default=False),
    "use_bias_correction": Argument(kind="boolean", default=True),
    "adjust_lr_fn": Argument(kind="choice", choices=("match_rms_adamw", "original"), default="match_rms_adamw"),
    "standardize_rows": Argument(kind="boolean", default=False),
    "matrix_norm": Argument(kind="choice", choices=("spectral", "rows"), default="spectral"),
    "rank": Argument(kind="integer", low=1, high=LARGEST_INTEGER, optional=True),
    "rest_scale": Argument(kind="float", low=0.0, open_low=True, default=0.1),
    "state_dtype": Argument(kind="choice", choices=("float32", "bfloat16", "int8", "int4"), default="float32"),
    "product_dtype": Argument(kind="choice", choices=("float32", "bfloat16"), default="float32"),
    "low_precision_weights": Argument(kind="choice", choices=("nearest", "stochastic", "master"), default="nearest"),
    "max_failed_refreshes": Argument(kind="integer", low=0, high=LARGEST_INTEGER, default=3),
    "distributed": Argument(kind="choice", choices=("auto", "lossless", "local"), default="auto"),
    "communication_dtype": Argument(kind="choice", choices=("float32", "bfloat16", "float16"), default="float32"),
    "num_ranks_per_group": Argument(kind="integer", low=1, high=LARGEST_INTEGER, optional=True),
    "reduce_gradients": Argument(kind="boolean", default=False),
}

SHAMPOO_IN_FLIGHT = frozenset(
    {
        "lr",
        "betas",
        "beta3",
        "shampoo_beta",
        "epsilon",
        "weight_decay",
        "momentum",
        "precondition_frequency",
        "statistics_frequency",
        "refresh_tolerance",
        "grafting_beta2",
        "grafting_epsilon",
        "exponent_override",
        "rest_scale",
    }
)
"""Numbers that may change between two steps of a training run; see `search_spaces.optimizers.IN_FLIGHT`."""

LR_OF_ONE_STEP = 0.125
LARGEST_LR = 0.016
SHORT_LR_OF_ONE_STEP = 15.0
LARGEST_SHORT_LR = 0.064
HIGHER_IN_SHORT_RUNS = frozenset({"kl", "spectral"})
"""All are those of `shampoo.starting_values`, which says where they come from."""


def starting_lr(num_steps: int, *, preconditioner: str | None = None) -> float:
    """The peak learning rate for a training of `num_steps` >= 1, with steps of Adam's length: the longer the training,
    the smaller, without a lower limit. `preconditioner`: the member of the family; None: another optimizer."""
    lr = min(LARGEST_LR, LR_OF_ONE_STEP / num_steps**0.5)
    if preconditioner in HIGHER_IN_SHORT_RUNS:
        lr = max(lr, min(LARGEST_SHORT_LR, SHORT_LR_OF_ONE_STEP / num_steps**1.5))
    return float(f"{lr:.2g}")
