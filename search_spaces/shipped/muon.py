"""The preset for Muon with AdamW on what is no hidden matrix, a baseline that orthogonalises momentum."""

from __future__ import annotations

from search_spaces.parameters import Float
from search_spaces.shipped.shared import DECOUPLED_DECAY, WARM_UP, adam_lr, momentum
from search_spaces.space import SearchSpace

MUON_SOURCES = "Muon is scalable (arXiv:2502.16982); torch.optim.Muon"

MUON = SearchSpace(
    optimizer="muon",
    parameters=(
        adam_lr(
            default=1.5e-3,
            reason="steps scaled to the length of AdamW's, so the same range and first value",
            source=MUON_SOURCES,
        ),
        momentum(default=0.95, reason="of the matrices: 1 - momentum in [0.01, 0.2]", source=MUON_SOURCES),
        DECOUPLED_DECAY,
        WARM_UP,
        Float(
            "adamw_lr_ratio",
            0.25,
            4.0,
            scale="log",
            default=1.0,
            reason="AdamW's learning rate, for embeddings, head and vectors, over that of the matrices",
            source="Hyperparameter transfer for matrix preconditioners (arXiv:2512.05620): 1.6",
        ),
    ),
    fixed={"betas": (0.9, 0.95), "eps": 1e-8, "adjust_lr_fn": "match_rms_adamw"},
)
