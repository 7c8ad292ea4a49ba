"""The preset for SGD with Nesterov momentum, a second baseline, strong on convolutional networks."""

from __future__ import annotations

from search_spaces.parameters import Float
from search_spaces.space import SearchSpace

GRAFTED = "AlgoPerf, the SGD-grafted point of the Shampoo submission; SGD settings of the 4-bit Shampoo paper"

SGD = SearchSpace(
    optimizer="sgd",
    parameters=(
        Float(
            "lr",
            1e-2,
            3.0,
            scale="log",
            default=0.1,
            reason="the same range as Shampoo's with SGD grafting",
            source=GRAFTED,
        ),
        Float(
            "momentum",
            0.8,
            0.99,
            scale="reverse_log",
            default=0.9,
            reason="1 - momentum in [0.01, 0.2]",
            source=GRAFTED,
        ),
        Float(
            "weight_decay",
            1e-6,
            1e-3,
            scale="log",
            default=1e-4,
            reason="added to the gradient (L2)",
            source="4-bit Shampoo (arXiv:2405.18144), SGD baselines",
        ),
        Float(
            "schedule.warmup_fraction",
            0.005,
            0.1,
            scale="log",
            default=0.05,
            reason="share of the steps in which the learning rate rises",
            source=GRAFTED,
        ),
    ),
    fixed={"nesterov": True},
)
