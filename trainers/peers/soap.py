"""SOAP of the package pytorch_optimizer: a peer of our own `preconditioner="soap"`, written by others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from torch import Tensor
from torch.optim import Optimizer

from shampoo.distributed.layout import is_dtensor
from trainers.installation.extras import optional_library

EXTRA = "peers"


def peer_soap(
    params: Iterable[Tensor] | Iterable[dict[str, Any]],
    lr: float = 3e-3,
    betas: tuple[float, float] = (0.95, 0.95),
    shampoo_beta: float | None = None,
    weight_decay: float = 1e-2,
    precondition_frequency: int = 10,
    max_precondition_dim: int = 10000,
    merge_dims: bool = False,
    precondition_1d: bool = False,
    correct_bias: bool = True,
    normalize_gradient: bool = False,
    eps: float = 1e-8,
) -> Optimizer:
    """`pytorch_optimizer.SOAP` with these of its arguments, named and preset as there.

    Its first step only sets up the preconditioners and moves nothing.

    Raises:
        ValueError: the package is not installed (the message has the command), an argument is out of its range, or a
            parameter is a shard: the factors are of whole parameters.
    """
    groups = list(params)
    members = [p for one in groups for p in (one["params"] if isinstance(one, dict) else [one])]
    if any(is_dtensor(parameter) for parameter in members):
        raise ValueError("SOAP of pytorch_optimizer needs whole parameters, got a sharded one: train with ddp")
    library = optional_library("pytorch_optimizer", extra=EXTRA, purpose="the optimizer soap-peer")
    optimizer = cast(
        "Optimizer",
        library.SOAP(
            groups,
            lr=lr,
            betas=betas,
            shampoo_beta=shampoo_beta,
            weight_decay=weight_decay,
            precondition_frequency=precondition_frequency,
            max_precondition_dim=max_precondition_dim,
            merge_dims=merge_dims,
            precondition_1d=precondition_1d,
            correct_bias=correct_bias,
            normalize_gradient=normalize_gradient,
            eps=eps,
        ),
    )
    optimizer.register_step_post_hook(_lay_out)
    return optimizer


def _lay_out(optimizer: Optimizer, *_: Any) -> None:
    """Stores bases by rows, as a checkpoint does: products with those that QR stores by columns round otherwise, and a
    resumed trial would not go on bit for bit."""
    for state in optimizer.state.values():
        if isinstance(bases := state.get("Q"), list):
            state["Q"] = [basis.contiguous() if isinstance(basis, Tensor) else basis for basis in bases]
