"""The hyperparameters that are one of a few words, and those words; `Hyperparameters` says what they mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias, get_args

Preconditioner: TypeAlias = Literal["shampoo", "soap", "kl", "spectral", "none"]
Grafting: TypeAlias = Literal["none", "sgd", "adagrad", "rmsprop", "adam"]
WeightDecayType: TypeAlias = Literal["decoupled", "l2", "independent"]
EpsilonType: TypeAlias = Literal["relative", "absolute"]
Solver: TypeAlias = Literal["eigh", "eigh64", "coupled_newton", "qr", "cholesky_qr"]
LargeDimMethod: TypeAlias = Literal["blocking", "diagonal", "one_sided"]
AdjustLr: TypeAlias = Literal["match_rms_adamw", "original"]
StateDtype: TypeAlias = Literal["float32", "bfloat16", "int8", "int4"]
ProductDtype: TypeAlias = Literal["float32", "bfloat16"]
LowPrecisionWeights: TypeAlias = Literal["nearest", "stochastic", "master"]
Distributed: TypeAlias = Literal["auto", "lossless", "local"]
CommunicationDtype: TypeAlias = Literal["float32", "bfloat16", "float16"]

CHOICES: Mapping[str, tuple[str, ...]] = {
    "preconditioner": get_args(Preconditioner),
    "solver": get_args(Solver),
    "grafting": get_args(Grafting),
    "weight_decay_type": get_args(WeightDecayType),
    "epsilon_type": get_args(EpsilonType),
    "large_dim_method": get_args(LargeDimMethod),
    "adjust_lr_fn": get_args(AdjustLr),
    "state_dtype": get_args(StateDtype),
    "product_dtype": get_args(ProductDtype),
    "low_precision_weights": get_args(LowPrecisionWeights),
    "distributed": get_args(Distributed),
    "communication_dtype": get_args(CommunicationDtype),
}
OPTIONAL_CHOICES = frozenset({"solver", "grafting"})
"""Those that may also be None."""
