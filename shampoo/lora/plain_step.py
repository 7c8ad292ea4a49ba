"""The AdamW step of parameters that are not factors: a head, biases, norms."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from shampoo.lora.hyperparameters import LoraRiteHyperparameters
from shampoo.state.buckets import state_dtype


def new_plain_state(param: Tensor) -> dict[str, Any]:
    """The state before the first step: 0."""
    like = param.new_empty((), dtype=state_dtype(param.dtype))
    return {
        "exp_avg": like.new_zeros(param.shape),
        "exp_avg_sq": like.new_zeros(param.shape),
        "weights": like.new_zeros(2),
        "num_skipped": like.new_zeros((), dtype=torch.int64),
    }


def plain_step(param: Tensor, state: dict[str, Any], h: LoraRiteHyperparameters) -> None:
    """Moves a parameter that has a gradient, and its state, as `torch.optim.AdamW` does; neither if the gradient is not
    finite.

    The averages are divided by the sum of their weights, which is Adam's correction of their bias.
    """
    assert param.grad is not None
    G = param.grad.to(state["exp_avg"].dtype)
    is_finite = torch.linalg.vector_norm(G).isfinite()
    G = G.where(is_finite, 0.0)
    # If the gradient is not finite, all weights of new values are 0, and the old values are kept.
    kept = [torch.where(is_finite, G.new_full((), beta), 1.0) for beta in h.betas]
    weights = state["weights"]
    state["exp_avg"].mul_(kept[0]).add_(G, alpha=1 - h.betas[0])
    state["exp_avg_sq"].mul_(kept[1]).addcmul_(G, G, value=1 - h.betas[1])
    weights.copy_(torch.stack([weights[i] * one + (1 - one) for i, one in enumerate(kept)]))
    root = (state["exp_avg_sq"] / weights[1]).sqrt() + h.eps
    before = param.to(root.dtype)
    after = before * (1 - h.lr * h.weight_decay) - h.lr * (state["exp_avg"] / weights[0]) / root
    param.copy_(after.where(is_finite, before))
    state["num_skipped"].add_(~is_finite)
