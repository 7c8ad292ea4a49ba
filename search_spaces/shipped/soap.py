"""The presets for SOAP, ours and that of the package pytorch_optimizer, and for KL-Shampoo. All keep an eigenbasis of
Kronecker factors and take steps of Adam's length in it, so all are tuned as Adam is.
"""

from __future__ import annotations

from collections.abc import Mapping

from search_spaces.parameters import Float
from search_spaces.shipped.shared import (
    DECOUPLED_DECAY,
    OWN_SEARCHES,
    WARM_UP,
    adam_lr,
    first_beta,
    refresh_period,
    second_beta,
)
from search_spaces.space import FixedValue, SearchSpace

SOAP_PAPER = "SOAP (arXiv:2409.11321) and its public code"

_LR = adam_lr(default=3e-3, reason="an Adam step length: start from AdamW's best", source=SOAP_PAPER)
_LR_OF_KL = adam_lr(default=3e-3, reason="an Adam step length, so SOAP's range and first value", source=SOAP_PAPER)
_OTHERS = (
    first_beta(default=0.95),
    DECOUPLED_DECAY,
    WARM_UP,
    second_beta(
        default=0.95,
        reason="averages the factors and, in their eigenbasis, the squares or eigenvalues",
        source=SOAP_PAPER,
    ),
    refresh_period(
        reason="steps between refreshes of the basis: the loss rises by less than 1% from 1 to 50",
        source=SOAP_PAPER,
    ),
)
_EPSILON = Float(
    "epsilon",
    1e-10,
    1e-2,
    scale="log",
    default=1e-6,
    reason="a share of the largest eigenvalue; its roots enlarge what is small more than Shampoo's, so more may pay",
    source=OWN_SEARCHES,
)
_FIXED: Mapping[str, FixedValue] = {"weight_decay_type": "decoupled", "max_preconditioner_dim": 1024}

SOAP = SearchSpace("shampoo", (_LR, *_OTHERS), {"preconditioner": "soap", **_FIXED})
KL = SearchSpace("shampoo", (_LR_OF_KL, *_OTHERS, _EPSILON), {"preconditioner": "kl", **_FIXED})
"""KL-Shampoo (arXiv:2509.03378), in SOAP's ranges and with the damping of its roots."""
SOAP_PEER = SearchSpace("soap-peer", (_LR, *_OTHERS), {"max_precondition_dim": 1024})
"""The search of our own SOAP, for the one of pytorch_optimizer."""
