"""Grafting: the step of a diagonal method, whose length per block the preconditioned step takes.

With F the (averaged) gradient, G the gradient, V the squared gradients, εg `grafting_epsilon`:

    sgd      N = F
    adagrad  V ← V + G⊙G                   N = F / (√V + εg)
    rmsprop  V ← β V + (1 − β) G⊙G         N = F / (√V + εg)
    adam     V ← β V + (1 − β) G⊙G         N = F / (√(V/(1 − βᵗ)) + εg)

Before preconditioning starts, and for vectors always, N is the direction itself. Grafting: Agarwal et al.,
"Disentangling Adaptive Gradient Methods from Learning Rates", arXiv 2002.11803; in Shampoo: arXiv 2309.06497.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from shampoo.hyperparameters import Grafting, Hyperparameters
from shampoo.torch_internals import FUSED_ADAM_DEVICES, fused_adam_


def has_second_moment(method: Grafting) -> bool:
    """True if the method keeps V."""
    return method in ("adagrad", "rmsprop", "adam")


def is_adamw(h: Hyperparameters, device_type: str) -> bool:
    """True if plain steps are those of `torch.optim.AdamW`, on a device that has its kernel."""
    return (
        device_type in FUSED_ADAM_DEVICES
        and h.plain_method == "adam"
        and h.betas[0] > 0
        and h.beta3 in (None, h.betas[0])
        and h.momentum == 0
        and h.use_bias_correction
        and (h.weight_decay == 0 or h.weight_decay_type != "l2")
    )


def accumulate(V: Tensor, G: Tensor, *, method: Grafting, beta: float) -> None:
    """Updates V in place with the gradient G of the same shape."""
    if method == "adagrad":
        V.addcmul_(G, G)
    else:
        V.mul_(beta).addcmul_(G, G, value=1 - beta)


def direction(
    F: Tensor, V: Tensor | None, *, method: Grafting, epsilon: float, correction: float, out: Tensor
) -> tuple[Tensor, float]:
    """N as the product of a tensor and a scalar; the tensor is F itself for sgd and none, else `out`.

    F/(√(V/c) + ε) = F/(√V + ε√c) · √c: the bias correction c costs no pass over the elements.
    """
    if V is None or not has_second_moment(method):
        return F, 1.0
    root = math.sqrt(correction)
    torch.sqrt(V, out=out).add_(epsilon * root)
    return torch.div(F, out, out=out), root


def adam_in_one_pass(
    G: Tensor, M: Tensor, V: Tensor, *, betas: tuple[float, float], epsilon: float, step: int | None, out: Tensor
) -> Tensor:
    """Updates M ← β1 M + (1 − β1) G and V as for adam, and gives M/(√(V/c) + ε), without M's own correction, in `out`.

    Applies torch's fused AdamW to weights of 0, which reads and writes half as often as separate operations.

    Args:
        step: t of c = 1 − β2ᵗ; None for c = 1.
    """
    # At a step this large there is no bias left to correct.
    t = 1e9 if step is None else float(step)
    fused_adam_(
        [out.zero_()],
        [G],
        [M],
        [V],
        [],
        [torch.full((), t, dtype=torch.float32, device=G.device)],  # written by the device: no copy to wait for
        lr=betas[0] ** t - 1,  # undoes its bias correction of M
        beta1=betas[0],
        beta2=betas[1],
        weight_decay=0.0,
        eps=epsilon,
        amsgrad=False,
        maximize=False,
    )
    return out
