"""The preset for LoRA-RITE, which trains low-rank adapters and nothing else."""

from __future__ import annotations

from search_spaces.shipped.shared import DECOUPLED_DECAY, WARM_UP, adam_lr, first_beta, second_beta
from search_spaces.space import SearchSpace

_PAPER = "LoRA-RITE (arXiv:2410.20625)"

LORA_RITE = SearchSpace(
    optimizer="lora-rite",
    parameters=(
        adam_lr(
            default=1.5e-3,
            reason="steps of Adam's length in the coordinates of the product, so AdamW's range and first value",
            source=_PAPER,
        ),
        first_beta(default=0.9),
        DECOUPLED_DECAY,
        WARM_UP,
        second_beta(
            default=0.999,
            reason="averages the second moment and the escaped mass: 1 - beta2 in [0.001, 0.1], larger with the batch",
            source=_PAPER,
        ),
    ),
    fixed={"eps": 1e-6, "clip_unmagnified_grad": 1.0},
)
