"""The preset for AdamW, the baseline: as well searched as Shampoo, so that the comparison is fair."""

from __future__ import annotations

from search_spaces.shipped.shared import DECOUPLED_DECAY, WARM_UP, adam_lr, first_beta, second_beta
from search_spaces.space import SearchSpace

ADAMW = SearchSpace(
    optimizer="adamw",
    parameters=(
        adam_lr(default=1.5e-3, reason="the same range and first value as Shampoo's with Adam grafting"),
        first_beta(default=0.9),
        DECOUPLED_DECAY,
        WARM_UP,
        second_beta(
            default=0.999, reason="averages the squared gradient: 1 - beta2 in [0.001, 0.1], larger with the batch"
        ),
    ),
    fixed={"eps": 1e-8},
)
