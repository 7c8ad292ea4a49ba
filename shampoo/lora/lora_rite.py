"""`LoraRite`: LoRA-RITE as torch knows an optimizer, with parameter groups, a step and checkpoints.

The arithmetic of a factor, and its source, are in `factor_step`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any, Never, TypeVar, overload

import torch
from torch import Tensor
from torch.optim import Optimizer

from shampoo import torch_internals
from shampoo.group_rules import in_order, is_trained, require_own_memory, require_state_of_an_optimizer
from shampoo.lora.factor_step import clip_factor
from shampoo.lora.factors import Factor, FactorStack, alike, factors_of
from shampoo.lora.groups import refuse_arguments, require_known_keys, require_params, require_saved_groups
from shampoo.lora.hyperparameters import NAMES, LoraRiteHyperparameters
from shampoo.lora.plain_step import new_plain_state, plain_step
from shampoo.state.buckets import state_dtype
from shampoo.state.held_states import beside_parameters, replace_beside, require_no_positions
from shampoo.state.transfer import copy_state, require_same_layout

Loss = TypeVar("Loss")
"""The result of a closure, as a rule a float or a tensor: `step` passes it on."""


class LoraRite(Optimizer):
    """LoRA-RITE for the two factors of each low-rank adapter, W₀ + scale·B A, and AdamW for everything else.

        optimizer = LoraRite(lora_param_groups(model), lr=2e-3)

    The path of the product B A is the same however a pair is scaled or rotated: (T A, B T⁻¹) for any invertible T.

    In a group's `params` each A (r, in) is followed by its B (out, r), as peft stores those of linear layers; further
    sides, such as those of a convolution, count as one. A group with `"paired": False` takes plain AdamW steps. The
    arguments after `params` are hyperparameters of a group and may be overridden there; a changed value counts from the
    next step.

    State is at least float32, and allocated here, so the model must be on its device already. A frozen parameter has
    none until its first step. A factor without a gradient is left alone, but its partner steps. If the norm of a
    factor's gradient is not finite, or its partner is not, neither the factor nor its averages move; it is counted in
    `state[param]["num_skipped"]`. B = 0, where adapters begin, is fine: A begins to move once B has moved.

    Under DDP every rank takes the same step. DTensors (FSDP2, HSDP, SimpleFSDP) are refused.

    Raises:
        ValueError: an argument is illegal, or parameters are not pairs; the message holds the values.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]],
        lr: float | Tensor = 1e-3,
        *,
        betas: Sequence[float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        clip_unmagnified_grad: float | None = 1.0,
        **unknown: Never,
    ) -> None:
        """Allocates the state of the parameters; `shampoo.lora.hyperparameters` says more on each argument.

        Args:
            params: Pairs in turns, or groups: dicts of `params` and what differs there, as `lora_param_groups` gives.
            lr: Learning rate, >= 0.
            betas: (β1, β2), each in [0, 1), of the first moment, and of the second with the escaped mass.
            eps: Added to the root of second moments, > 0.
            weight_decay: Decoupled weight decay, >= 0.
            clip_unmagnified_grad: Largest norm of the unmagnified gradients of all pairs together, > 0; None: they are
                not clipped.
        """
        refuse_arguments(unknown)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "clip_unmagnified_grad": clip_unmagnified_grad,
            "paired": True,
        }
        defaults["betas"] = tuple(LoraRiteHyperparameters.of_group(defaults).betas)
        super().__init__(params if isinstance(params, Tensor) else in_order(params), defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group, `params` and the hyperparameters that differ, and allocates its state.

        Raises:
            TypeError: the parameters are a set, which has no order.
            ValueError: a hyperparameter is illegal or unknown, or the parameters are not pairs, or share memory.
        """
        # Everything is checked on a copy: a group that is refused leaves nothing behind.
        require_known_keys(param_group)
        h = LoraRiteHyperparameters.of_group({**self.defaults, **param_group})
        params = in_order(param_group["params"])
        tensors = [named[1] if isinstance(named, tuple) else named for named in params]
        require_params(tensors, paired=h.paired)
        require_own_memory([*self.param_groups, {"params": tensors}])
        super().add_param_group({**param_group, "params": params})
        group = self.param_groups[-1]
        plain = {name: getattr(h, name) for name in NAMES if not isinstance(group[name], Tensor)}
        group.update({**plain, "betas": tuple(h.betas)})
        for param, factor in _members(group):
            if is_trained(param):
                self.state[param] = _new_state(param, factor)

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], Loss]) -> Loss: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], Loss] | None = None) -> Loss | None:
        """Takes one step; with a closure, evaluates it first and gives its value.

        Raises:
            ValueError: a hyperparameter was changed to an illegal value, or `paired` was changed; nothing has moved
                then.
            RuntimeError: a gradient is sparse, or a parameter has another shape, dtype or device than when its state
                was made; nothing has moved then.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        checked = [LoraRiteHyperparameters.of_group(group) for group in self.param_groups]
        stacks: list[tuple[LoraRiteHyperparameters, FactorStack]] = []
        plain: list[tuple[LoraRiteHyperparameters, Tensor]] = []
        for h, group in zip(checked, self.param_groups, strict=True):
            require_known_keys(group, is_live=True)
            members = [(param, factor) for param, factor in _members(group) if param.grad is not None]
            for param, factor in members:
                if not self.state[param]:  # unfrozen
                    self.state[param] = _new_state(param, factor)
                _require_fit(param, factor, self.state[param], paired=h.paired)
            factors = [factor for _, factor in members if factor is not None]
            stacks += [(h, FactorStack(same)) for same in alike(factors)]
            plain += [(h, param) for param, factor in members if factor is None]
        norms = [stack.squared_norms for _, stack in stacks]
        for h, stack in stacks:
            limit = h.clip_unmagnified_grad
            stack.step(self.state, h, clip=None if limit is None else clip_factor(norms, limit))
        for h, param in plain:
            plain_step(param, self.state[param], h)
        return loss

    def state_dict(self) -> dict[str, Any]:
        """State and hyperparameters, as torch's optimizers give them.

        Raises:
            ValueError: a key of `state` is the position of a parameter, under which the state of that one is saved.
        """
        num_params = sum(len(group["params"]) for group in self.param_groups)
        require_no_positions(beside_parameters(self.state), num_params=num_params)
        return super().state_dict()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.defaults = {name: x for name, x in self.defaults.items() if name in NAMES}  # torch has put its own there

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over state and hyperparameters of a `state_dict()`; resumed training is bit-identical.

        Everything is checked before anything is written. torch's own version is replaced because it casts the state
        to the parameters' dtype.

        Raises:
            ValueError: it is not from an optimizer, or from another one; or groups, names, shapes or dtypes do not fit
                these parameters, or a hyperparameter is illegal or unknown.
        """
        state_dict = torch_internals.before_loading(self, state_dict)
        require_state_of_an_optimizer(state_dict)
        # Copies, because the user's own keys may hold lists.
        saved_groups: list[dict[str, Any]] = deepcopy(state_dict["param_groups"])
        require_saved_groups(saved_groups, self.param_groups)
        found: dict[Tensor, dict[str, Any]] = {}
        for group, saved in zip(self.param_groups, saved_groups, strict=True):
            for key, (param, factor) in zip(saved["params"], _members(group), strict=True):
                held = state_dict["state"].get(key)
                if held or is_trained(param):
                    found[param] = _new_state(param, factor)
                if held:
                    require_same_layout(held, found[param], parameter=key)
                    copy_state(held, found[param])
        for param in [param for group in self.param_groups for param in group["params"]]:
            self.state.pop(param, None)
        self.state.update(found)
        keys = {key for group in saved_groups for key in group["params"]}
        replace_beside(self.state, {key: held for key, held in state_dict["state"].items() if key not in keys})
        for group, saved in zip(self.param_groups, saved_groups, strict=True):
            group.update({name: value for name, value in saved.items() if name != "params"})
            group["betas"] = tuple(group["betas"])
        torch_internals.after_loading(self)


def _members(group: Mapping[str, Any]) -> list[tuple[Tensor, Factor | None]]:
    """The parameters of a group, each with its factor, if it is one."""
    if not group["paired"]:
        return [(param, None) for param in group["params"]]
    return [(factor.param, factor) for factor in factors_of(group["params"])]


@torch.inference_mode(False)  # tensors made in that mode can never be written to outside of it
def _new_state(param: Tensor, factor: Factor | None) -> dict[str, Any]:
    return new_plain_state(param) if factor is None else factor.new_state()


def _require_fit(param: Tensor, factor: Factor | None, state: Mapping[str, Any], *, paired: bool) -> None:
    """Checks a parameter that has a gradient against its state.

    Raises:
        ValueError: the state is of the other kind (factor or plain).
        RuntimeError: the gradient is sparse, or the parameter has moved to another device or precision, or it or its
            partner has another shape.
    """
    if ("basis" in state) != paired:
        raise ValueError(f"paired changed to {paired!r}: it shapes the optimizer state, so it needs a new optimizer")
    if param.grad is not None and param.grad.layout != torch.strided:
        raise RuntimeError(f"LoraRite needs dense gradients, got {param.grad.layout} for shape {tuple(param.shape)}")
    if factor is None:
        found, made = [param.shape], [state["exp_avg"].shape]
    else:
        found, made = [factor.matrix.shape, factor.other_matrix.shape], [state["momentum"].shape, state["basis"].shape]
    if found != made:
        raise RuntimeError(
            f"a parameter has the shape {tuple(param.shape)} now, and it or its partner had another one when the "
            "optimizer made its state: change the model first, and build the optimizer then"
        )
    weights = state["weights"]
    if weights.device != param.device or weights.dtype != state_dtype(param.dtype):
        raise RuntimeError(
            f"a parameter {tuple(param.shape)} is {param.dtype} on {param.device}, and its state {weights.dtype} on "
            f"{weights.device}: convert and move the model first, then make the optimizer"
        )
