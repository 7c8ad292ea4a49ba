"""The preset for SGD with Nesterov momentum, a second baseline, strong on convolutional networks."""

from __future__ import annotations

from search_spaces.shipped.shared import WARM_UP, momentum, sgd_lr, sgd_weight_decay
from search_spaces.space import SearchSpace

SGD = SearchSpace(
    optimizer="sgd",
    parameters=(
        sgd_lr(reason="the same range as Shampoo's with SGD grafting"),
        momentum(default=0.9, reason="classic undamped momentum: 1 - momentum in [0.01, 0.2]"),
        sgd_weight_decay(
            default=1e-4,
            reason="added to the gradient (L2)",
            source="4-bit Shampoo (arXiv:2405.18144), SGD baselines",
        ),
        WARM_UP,
    ),
    fixed={"nesterov": True},
)
