"""The presets for the spectral member of the family: momentum with all singular values made 1, and Adam's steps for
what is no matrix; and with a rank, Adam's steps along the leading eigenvectors of matrices, too. Scaled to AdamW's
length, so both are tuned as Adam is.
"""

from __future__ import annotations

from collections.abc import Mapping

from search_spaces.parameters import Float, Integer
from search_spaces.shipped.muon import MUON_SOURCES
from search_spaces.shipped.shared import DECOUPLED_DECAY, WARM_UP, adam_lr, first_beta, second_beta
from search_spaces.space import FixedValue, SearchSpace

COSMOS_SOURCES = "COSMOS (arXiv:2502.17410) and its public code"

_ALL = (
    adam_lr(
        default=1.5e-3,
        reason="steps scaled to the length of AdamW's, so the same range and first value",
        source=MUON_SOURCES,
    ),
    first_beta(default=0.95),
    DECOUPLED_DECAY,
    WARM_UP,
)
_FIXED: Mapping[str, FixedValue] = {
    "preconditioner": "spectral",
    "weight_decay_type": "decoupled",
    "max_preconditioner_dim": 1024,
}

SPECTRAL = SearchSpace(
    optimizer="shampoo",
    parameters=(
        *_ALL,
        second_beta(
            default=0.95,
            reason="averages the squared gradient of vectors alone: matrices have no second average",
            source="Muon's public code, AdamW beside it: 0.95",
        ),
    ),
    fixed=_FIXED,
)
COSMOS = SearchSpace(
    optimizer="shampoo",
    parameters=(
        *_ALL,
        second_beta(
            default=0.95,
            reason="averages squares along the leading eigenvectors, and what these are of",
            source=COSMOS_SOURCES,
        ),
        Integer(
            "rank",
            4,
            128,
            scale="log",
            default=64,
            reason="leading eigenvectors of a matrix; nothing is left to orthogonalise beside all of its shorter side",
            source=COSMOS_SOURCES,
        ),
        Float(
            "rest_scale",
            0.01,
            1.0,
            scale="log",
            default=0.1,
            reason="length of the orthogonalised rest beside Adam's steps along the leading eigenvectors",
            source=COSMOS_SOURCES,
        ),
    ),
    fixed=_FIXED,
)
"""COSMOS: a state hardly larger than Muon's, with SOAP's steps where gradients are large."""
