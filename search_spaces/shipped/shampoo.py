"""The presets for Shampoo, one for each method whose step length it takes: what moves the loss is searched, what moves
mostly the cost is kept narrow.

Two presets, as their ranges have little in common; `family` searches both, and the rest of the family. By judgement of
the sources, importance falls in the order lr, weight decay and beta1, warm-up, beta2, epsilon, refresh period, block
size.
"""

from __future__ import annotations

from search_spaces.parameters import Categorical, Float
from search_spaces.shipped.shared import (
    DECOUPLED_DECAY,
    OWN_SEARCHES,
    WARM_UP,
    adam_lr,
    first_beta,
    momentum,
    refresh_period,
    second_beta,
    sgd_lr,
    sgd_weight_decay,
)
from search_spaces.space import SearchSpace

ALGOPERF = "AlgoPerf, Shampoo search space and the five points of the winning submission"
DISTRIBUTED_SHAMPOO = "Distributed Shampoo (arXiv:2309.06497) and its public code"

_OF_BOTH = (
    WARM_UP,
    second_beta(
        default=0.995,
        reason="averages the Kronecker factors: 1 - beta2 in [0.001, 0.1], larger with the batch",
        source=ALGOPERF,
    ),
    Float(
        "epsilon",
        1e-10,
        1e-4,
        scale="log",
        default=1e-6,
        reason="a share of the largest eigenvalue; below 1e-10 it vanishes beside the rounding of the factors",
        source="scalable_shampoo, which is relative as well: 1e-6; " + DISTRIBUTED_SHAMPOO,
    ),
    refresh_period(
        reason="steps between refreshes of the roots: stale ones can cost a short run much loss, fresh ones time",
        source=f"{DISTRIBUTED_SHAMPOO}; {OWN_SEARCHES}",
    ),
)

SHAMPOO = SearchSpace(
    optimizer="shampoo",
    parameters=(
        adam_lr(default=1.5e-3, reason="an Adam step length, so centred on Adam's learning rate", source=ALGOPERF),
        first_beta(default=0.95),
        DECOUPLED_DECAY,
        *_OF_BOTH,
    ),
    fixed={"grafting": "adam", "weight_decay_type": "decoupled", "max_preconditioner_dim": 1024},
)
"""The preset with Adam's step length, which suits most models."""

SHAMPOO_SGD = SearchSpace(
    optimizer="shampoo",
    parameters=(
        sgd_lr(reason="an SGD step length; the submission's 4.2 with damped momentum is 0.13 in the classic form"),
        Categorical("betas[0]", (0.0,), reason="with SGD grafting, momentum averages instead", source=ALGOPERF),
        momentum(default=0.9, reason="classic undamped momentum: 1 - momentum in [0.01, 0.2]"),
        sgd_weight_decay(
            default=1e-5,
            reason="smaller than with Adam grafting, as the learning rate that multiplies it is larger",
            source=DISTRIBUTED_SHAMPOO,
        ),
        *_OF_BOTH,
    ),
    fixed={"grafting": "sgd", "weight_decay_type": "decoupled", "max_preconditioner_dim": 1024},
)
"""The preset with SGD's step length and momentum, as for convolutions with batch norm."""
