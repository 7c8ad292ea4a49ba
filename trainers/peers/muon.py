"""Muon for the matrices and AdamW for the rest, in one optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim import AdamW, Muon, Optimizer

from shampoo.distributed.layout import is_dtensor


class MuonWithAdamW(Optimizer):
    """`torch.optim.Muon` on matrices, `torch.optim.AdamW` on all other parameters.

    A parameter with two sides, both larger than 1, is a matrix, unless its group says `"preconditioner": "none"`: so
    `shampoo.param_groups(model)` gives it the groups that it gives to Shampoo, with embeddings and the head apart.
    Kernels of convolutions have four sides and go to AdamW, as torch's Muon takes none.

    Each given group becomes up to two, Muon's and AdamW's, with the hyperparameters of its own kind. A state is saved,
    loaded and scheduled as that of any optimizer of torch.

    Args:
        params: parameters or groups. A group's own `lr` is taken as it is by both.
        lr: the learning rate of Muon.
        momentum: the momentum of Muon.
        nesterov: True: Muon's momentum is Nesterov's.
        ns_steps: Newton-Schulz iterations in each step of Muon.
        adjust_lr_fn: scale of Muon's step by a matrix's shape; with "match_rms_adamw" it has the length of one of
            AdamW, so that learning rates and decay are those of AdamW.
        adamw_lr_ratio: AdamW's learning rate over Muon's.
        betas: weights of the past in AdamW's averages.
        eps: damping of AdamW's division.
        weight_decay: decoupled weight decay of both.
        preconditioner: "none" leaves all to AdamW; for groups.

    Raises:
        ValueError: a hyperparameter is out of its range, or a parameter is a shard: Muon needs whole matrices.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float = 1e-3,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_steps: int = 5,
        adjust_lr_fn: Literal["original", "match_rms_adamw"] = "match_rms_adamw",
        adamw_lr_ratio: float = 1.0,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        preconditioner: Literal["muon", "none"] = "muon",
    ) -> None:
        given = {
            "lr": lr,
            "momentum": momentum,
            "nesterov": nesterov,
            "ns_steps": ns_steps,
            "adjust_lr_fn": adjust_lr_fn,
            "adamw_lr_ratio": adamw_lr_ratio,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "preconditioner": preconditioner,
        }
        _check(given)
        groups = [part for group in _as_groups(params) for part in _parts(group, given)]
        self._inner = _inner_of(groups, given)
        super().__init__(groups, {})

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._inner = _inner_of(self.param_groups, {})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]  # it has overloads
        """One step of both; the loss if there is a closure, which is called once."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for inner in self._inner:
            inner.state = self.state
            inner.step()
        return loss

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Refuses groups after the constructor's, which are split there.

        Raises:
            ValueError: the optimizer stands already.
        """
        if param_group.get("preconditioner") not in _KINDS:
            raise ValueError("give all groups to the constructor: later ones are not split into Muon's and AdamW's")
        super().add_param_group(param_group)


_KINDS: Mapping[str, Callable[..., Optimizer]] = {"muon": Muon, "none": AdamW}
_ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "muon": ("lr", "momentum", "nesterov", "ns_steps", "adjust_lr_fn", "weight_decay"),
    "none": ("lr", "betas", "eps", "weight_decay"),
}


def _inner_of(groups: list[dict[str, Any]], given: Mapping[str, Any]) -> list[Optimizer]:
    """Muon and AdamW, each of its own groups: it completes them, and steps these very objects.

    Args:
        given: arguments for it to check.
    """
    inner = []
    for kind, make in _KINDS.items():
        if of_kind := [group for group in groups if group["preconditioner"] == kind]:
            inner.append(make(of_kind, **{name: given[name] for name in _ARGUMENTS[kind] if name in given}))
    return inner


def is_matrix(parameter: Tensor) -> bool:
    """True if it has two sides, both larger than 1."""
    return parameter.ndim == 2 and min(parameter.shape) > 1


def _parts(group: Mapping[str, Any], given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The group's matrices and its rest, as groups of Muon and AdamW; an empty one is left out."""
    arguments = {**given, **group}
    _check(arguments)
    parameters = list(group["params"])
    for parameter in parameters:
        if is_dtensor(parameter):
            raise ValueError("Muon needs whole matrices, got a sharded parameter: train with ddp")
    chosen: dict[str, list[Tensor]] = {"muon": [], "none": []}
    for parameter in parameters:
        kind = "muon" if arguments["preconditioner"] == "muon" and is_matrix(parameter) else "none"
        chosen[kind].append(parameter)
    parts = []
    for kind, members in chosen.items():
        if members:
            own = {name: arguments[name] for name in _ARGUMENTS[kind]}
            if kind == "none" and "lr" not in group:
                own["lr"] = arguments["lr"] * arguments["adamw_lr_ratio"]
            parts.append({**own, "params": members, "preconditioner": kind})
    return parts


def _check(arguments: Mapping[str, Any]) -> None:
    ratio, kind = arguments["adamw_lr_ratio"], arguments["preconditioner"]
    if not ratio >= 0:
        raise ValueError(f"adamw_lr_ratio must be >= 0, got {ratio!r}")
    if kind not in _KINDS:
        raise ValueError(f"preconditioner must be 'muon' or 'none', got {kind!r}")
    lr = arguments["lr"]
    if isinstance(lr, bool) or not isinstance(lr, int | float | Tensor) or lr < 0:
        raise ValueError(f"lr must be a number >= 0, got {lr!r}")


def _as_groups(params: Iterable[Any]) -> list[dict[str, Any]]:
    given = list(params)
    if not given:
        raise ValueError("there is no parameter to train")
    return [dict(group) for group in given] if isinstance(given[0], Mapping) else [{"params": given}]
