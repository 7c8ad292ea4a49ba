"""The preset for the spectral member of the family: momentum with all singular values made 1, and Adam's steps for what
is no matrix. Scaled to AdamW's length, so it is tuned as Adam is.
"""

from __future__ import annotations

from search_spaces.shipped.muon import MUON_SOURCES
from search_spaces.shipped.shared import DECOUPLED_DECAY, WARM_UP, adam_lr, first_beta, second_beta
from search_spaces.space import SearchSpace

SPECTRAL = SearchSpace(
    optimizer="shampoo",
    parameters=(
        adam_lr(
            default=1.5e-3,
            reason="steps scaled to the length of AdamW's, so the same range and first value",
            source=MUON_SOURCES,
        ),
        first_beta(default=0.95),
        DECOUPLED_DECAY,
        WARM_UP,
        second_beta(
            default=0.95,
            reason="averages the squared gradient of vectors alone: matrices have no second average",
            source="Muon's public code, AdamW beside it: 0.95",
        ),
    ),
    fixed={"preconditioner": "spectral", "weight_decay_type": "decoupled", "max_preconditioner_dim": 1024},
)
