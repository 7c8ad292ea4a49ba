"""The preset for AdamW, the baseline: as well searched as Shampoo, so that the comparison is fair."""

from __future__ import annotations

from search_spaces.parameters import Float
from search_spaces.space import SearchSpace

ALGOPERF = "AlgoPerf, AdamW search space"

ADAMW = SearchSpace(
    optimizer="adamw",
    parameters=(
        Float(
            "lr",
            1e-4,
            3e-2,
            scale="log",
            default=1.5e-3,
            reason="the same range and first value as Shampoo's with Adam grafting",
            source=ALGOPERF,
        ),
        Float(
            "betas[0]",
            0.5,
            0.98,
            scale="reverse_log",
            default=0.9,
            reason="averages the gradient: 1 - beta1 in [0.02, 0.5]",
            source=ALGOPERF,
        ),
        Float(
            "weight_decay",
            5e-5,
            1.0,
            scale="log",
            default=1e-2,
            reason="decoupled; the same range as Shampoo's",
            source=ALGOPERF,
        ),
        Float(
            "schedule.warmup_fraction",
            0.005,
            0.1,
            scale="log",
            default=0.05,
            reason="share of the steps in which the learning rate rises",
            source=ALGOPERF,
        ),
        Float(
            "betas[1]",
            0.95,
            0.999,
            scale="reverse_log",
            default=0.999,
            reason="averages the squared gradient: 1 - beta2 in [0.001, 0.05], larger with the batch",
            source=ALGOPERF,
        ),
    ),
    fixed={"eps": 1e-8},
)
