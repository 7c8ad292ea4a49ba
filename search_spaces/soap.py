"""The presets for SOAP and KL-Shampoo. Both keep an eigenbasis of Kronecker factors and take steps of Adam's length in
it, so both are tuned as Adam is.
"""

from __future__ import annotations

from collections.abc import Mapping

from search_spaces.parameters import Float, Integer
from search_spaces.space import FixedValue, SearchSpace

SOAP_PAPER = "SOAP (arXiv:2409.11321) and its public code"
ALGOPERF = "AlgoPerf, AdamW and Shampoo search spaces"

_PARAMETERS = (
    Float(
        "lr",
        1e-4,
        3e-2,
        scale="log",
        default=3e-3,
        reason="an Adam step length: start from AdamW's best",
        source=SOAP_PAPER,
    ),
    Float(
        "betas[0]",
        0.85,
        0.99,
        scale="reverse_log",
        default=0.95,
        reason="averages the gradient: 1 - beta1 in [0.01, 0.15]",
        source=ALGOPERF,
    ),
    Float(
        "weight_decay",
        5e-5,
        1.0,
        scale="log",
        default=1e-2,
        reason="decoupled: each step shrinks weights by lr * weight_decay",
        source=SOAP_PAPER,
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
        0.9,
        0.999,
        scale="reverse_log",
        default=0.95,
        reason="averages the factors and, in their eigenbasis, the squares or eigenvalues",
        source=SOAP_PAPER,
    ),
    Integer(
        "precondition_frequency",
        1,
        50,
        scale="log",
        default=10,
        reason="steps between refreshes of the basis: the loss rises by less than 1% from 1 to 50",
        source=SOAP_PAPER,
    ),
)
_FIXED: Mapping[str, FixedValue] = {"weight_decay_type": "decoupled", "max_preconditioner_dim": 1024}

SOAP = SearchSpace("shampoo", _PARAMETERS, {"preconditioner": "soap", **_FIXED})
KL = SearchSpace("shampoo", _PARAMETERS, {"preconditioner": "kl", **_FIXED})
"""KL-Shampoo (arXiv:2509.03378), in SOAP's ranges."""
