"""The rules of a parameter group: its keys, its parameters, and what its hyperparameters require of them."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from shampoo.declarations import as_number, without_numpy
from shampoo.distributed.agreement import SHARING, fixed_structure
from shampoo.distributed.layout import is_dtensor, layout_of
from shampoo.hyperparameters import DEFAULTS, NAMES, Hyperparameters, Preconditioner, unused
from shampoo.overlaps import overlapping
from shampoo.torch_internals import is_flattened

# Other keys that a group may hold: torch's own, the reference of independent weight decay, and those of torch's
# schedules.
_OTHER_KEYS = frozenset({"params", "param_names", "name", "peak_lr"})
KEYS_OF_SCHEDULES = frozenset({"initial_lr", "max_lr", "min_lr", "swa_lr", "base_momentum", "max_momentum"})
KEYS_OF_WRAPPERS = frozenset(
    {"lr_scale", "lr_mult", "wd_mult", "lr_multiplier", "wd_multiplier", "is_last_layer", "rho", "adaptive"}
)
"""Keys that other libraries put into a group before the optimizer is built: timm, Megatron and DINOv2 the factors of
their schedules, SAM the radius of its ascent."""
_OTHER_OPTIMIZERS: Mapping[str, str] = {
    "amsgrad": "torch.optim.AdamW or Adam",
    "dampening": "torch.optim.SGD",
    "ns_steps": "torch.optim.Muon",
    "lr_decay": "torch.optim.Adagrad",
    "alpha": "torch.optim.RMSprop",
}
"""The optimizer that has each of these keys in its groups; ours do not have them."""
_ADVICE: Mapping[str, str] = {
    **dict.fromkeys(("learning_rate", "learningrate"), "did you mean 'lr'?"),
    "wd": "did you mean 'weight_decay'?",
    "block_size": "did you mean 'max_preconditioner_dim'?",
    "grafting_config": "did you mean 'grafting'?",
    "preconditioner_config": "did you mean 'preconditioner'?",
    "update_freq": "did you mean 'precondition_frequency'?",
    "use_decoupled_weight_decay": "did you mean 'weight_decay_type'?",
    "eps": "did you mean 'epsilon', the damping of factors? AdamW's eps is 'grafting_epsilon'",
    "maximize": "minimize the negative loss",
    "amsgrad": "leave it out: squared gradients are averaged, and their maximum is not kept",
    "dampening": "leave it out: momentum is not dampened, as with dampening=0 in torch.optim.SGD",
    **dict.fromkeys(
        ("foreach", "fused", "capturable", "differentiable"),
        "leave it out: it is about how torch's own optimizers are computed",
    ),
}
"""Advice for the keyword arguments of torch's optimizers and of other Shampoos that ours does not have."""
_OLDEST = frozenset({"lr", "preconditioner"})
"""Hyperparameters that a state of any version has: a state without them is damaged or belongs to another optimizer."""
_KNOWN_KEYS = frozenset(NAMES) | _OTHER_KEYS | KEYS_OF_SCHEDULES | KEYS_OF_WRAPPERS


def require_known_keys(group: Mapping[str, Any], *, is_live: bool = False) -> None:
    """Checks the keys of a group.

    Args:
        is_live: the optimizer or a checkpoint already holds the group. Then a key that resembles no hyperparameter is
            not a misspelt setting of ours, but an entry that a wrapper keeps there for itself.

    Raises:
        ValueError: there are no parameters, or a key is not a hyperparameter; the message has the nearest one.
    """
    if "params" not in group:
        raise ValueError(f"a parameter group must have the key 'params', got {sorted(group)}")
    if group.keys() <= _KNOWN_KEYS:
        return
    for name in group:
        if name not in _KNOWN_KEYS and not (is_live and _advice(name) is None):
            raise ValueError(f"unknown hyperparameter {name!r} = {group[name]!r}{_hint(name)}")


def refuse_arguments(unknown: Mapping[str, object]) -> None:
    """Refuses keyword arguments that the optimizer does not have.

    Raises:
        TypeError: there is one; the message has the nearest argument that exists.
    """
    if unknown:
        name = next(iter(unknown))
        raise TypeError(f"Shampoo got an unexpected keyword argument {name!r} = {unknown[name]!r}{_hint(name)}")


def _hint(name: object) -> str:
    return _advice(name) or f" (known: {', '.join(NAMES)})"


@functools.cache  # each step checks every key of a wrapper
def _advice(name: object) -> str | None:
    if name in _ADVICE:
        return f", {_ADVICE[str(name)]}"
    nearest = difflib.get_close_matches(str(name), NAMES, n=1)
    return f", did you mean {nearest[0]!r}?" if nearest else None


def is_trained(param: Tensor) -> bool:
    """True if a parameter needs a state: it requires a gradient, or has been given one all the same."""
    return param.requires_grad or param.grad is not None


def in_order(params: Tensor | Iterable[Any]) -> list[Any]:
    """The parameters that a group is given, as a list: one tensor, or several, each alone or as (name, tensor).

    Raises:
        TypeError: they are a set. Another run would have them in another order, and load each with the saved state of
            another.
    """
    if isinstance(params, Tensor):
        return [params]
    if isinstance(params, set | frozenset):
        raise TypeError(f"parameters must have an order that is the same in every run, got a set of {len(params)}")
    return list(params)


def checked_tensors(params: Sequence[object]) -> list[Tensor]:
    """The parameters of a group that are tensors; torch itself raises an error for anything else.

    Raises:
        ValueError: one is not a dense, real, floating-point tensor with a shape and a separate place in memory for each
            element, or appears twice; or one that is trained has too few bits to be stepped.
    """
    if len({id(param) for param in params}) != len(params):
        raise ValueError(f"a parameter appears twice in one group of {len(params)} parameters")
    tensors = [param for param in params if isinstance(param, Tensor)]
    for index, param in enumerate(tensors):
        if not param.is_floating_point():
            raise ValueError(f"parameter {index} must be real and floating-point, got {param.dtype}")
        if param.layout != torch.strided:
            raise ValueError(f"parameter {index} must be dense, got {param.layout}")
        if is_lazy(param):
            raise ValueError(
                f"parameter {index} has no shape yet, got {type(param).__name__}: run a batch through the model first, "
                "and build the optimizer then"
            )
        if is_trained(param) and param.dtype.itemsize < 2:
            raise ValueError(f"parameter {index} must have 16 bits or more to be trained, got {param.dtype}")
        if any(d > 1 and s == 0 for d, s in zip(param.shape, param.stride(), strict=True)):
            raise ValueError(
                f"elements of parameter {index} share memory (an expanded view): shape {tuple(param.shape)}, "
                f"strides {param.stride()}"
            )
    return tensors


def parameter_name(group: Mapping[str, Any], index: int, number: int) -> str:
    """The name of a parameter for messages: its position in the group with this number, and its own name if it has
    one."""
    names = group.get("param_names")
    return f"parameter {index} of group {number}" + (f" ({names[index]!r})" if names else "")


def require_params(params: Sequence[object], h: Hyperparameters) -> None:
    """Checks that these parameters can be stepped with these hyperparameters.

    Raises:
        ValueError: one is not a real floating-point tensor with its own memory, appears twice, or has a layout on its
            ranks that is not supported; or a hyperparameter has no effect on any of them.
    """
    tensors = checked_tensors(params)
    for index, param in enumerate(tensors):
        if is_dtensor(param):
            layout_of(param, index=index)
    if h.preconditioner != "none" and any(map(is_flattened, tensors)) and all(param.dim() < 2 for param in tensors):
        raise ValueError(
            f"preconditioner={h.preconditioner!r} has no effect: FullyShardedDataParallel has made vectors of all "
            f"{len(tensors)} parameters. Shard the model with torch.distributed.fsdp.fully_shard, which leaves "
            "matrices what they are, or take preconditioner='none'"
        )
    if h.low_precision_weights != "nearest" and all(param.dtype.itemsize > 2 for param in tensors):
        raise ValueError(
            f"low_precision_weights={h.low_precision_weights!r} has no effect on parameters of "
            f"{sorted({str(param.dtype) for param in tensors})}"
        )
    require_effect_of_distributed(tensors, h)


def require_own_memory(groups: Sequence[Mapping[str, Any]]) -> None:
    """Checks that no element belongs to two parameters that are trained.

    Raises:
        ValueError: one does; the message has both names.
    """
    # torch itself reports a parameter that appears twice.
    places = {
        param: (group, index, number)
        for number, group in enumerate(groups)
        for index, param in enumerate(group["params"])
        if is_trained(param)
    }
    params = list(places)
    found = overlapping(params)
    if found is not None:
        a, b = (f"{parameter_name(*places[params[i]])} of shape {tuple(params[i].shape)}" for i in found)
        raise ValueError(
            f"{a} and {b} share memory, and both would be stepped: give the optimizer one of them, or the tensor that "
            "they are parts of"
        )


def require_effect_of_distributed(params: Sequence[Tensor], h: Hyperparameters) -> None:
    """Checks that the hyperparameters of sharing among ranks have an effect on the parameters of a group.

    Raises:
        ValueError: one of them has no effect on any parameter.
    """
    num = len(params)
    has_dtensors = any(is_dtensor(param) for param in params)
    if h.distributed == "local" and not has_dtensors:
        raise ValueError(f"distributed='local' has no effect: none of {num} parameters is a DTensor")
    if h.distributed == "auto" and h.communication_dtype != "float32" and not has_dtensors:
        raise ValueError(
            f"communication_dtype={h.communication_dtype!r} has no effect: none of {num} parameters is a DTensor, and "
            "plain ones are shared with distributed='lossless'"
        )
    for name in ("num_ranks_per_group", "reduce_gradients"):
        if getattr(h, name) not in (None, False) and num > 0 and all(is_dtensor(param) for param in params):
            raise ValueError(f"{name}={getattr(h, name)!r} has no effect: all of {num} parameters are DTensors")


def require_no_steps(states: Iterable[Any]) -> None:
    """Checks that no parameter has been stepped, before groups that have changed get a new state.

    Args:
        states: those of parameters, and other entries.

    Raises:
        RuntimeError: one has.
    """
    num_steps = max((held.get("step", 0) for held in states if isinstance(held, Mapping)), default=0)
    if num_steps > 0:
        raise RuntimeError(
            "param_groups do not hold the parameters that the optimizer was built with, in their order, or it has lost "
            f"the state of some, and it has taken steps, up to {num_steps} of one parameter: add parameters with "
            "add_param_group, replace, move or remove them before the first step, and freeze those that are to stay"
        )


def require_structure(h: Hyperparameters, built: Mapping[str, object]) -> None:
    """Checks that a state that was allocated for the structure `built` fits these hyperparameters.

    Raises:
        ValueError: it does not; the message says what changed.
    """
    found = fixed_structure(h)
    for name, value in built.items():
        if found[name] != value:
            message = f"{name} changed from {value!r} to {found[name]!r}: it shapes the optimizer state, so it needs a"
            hint = "; OneCycleLR and CyclicLR move β1 unless told cycle_momentum=False" if "betas[0]" in name else ""
            raise ValueError(f"{message} new optimizer{hint}")


def require_peak_lr(h: Hyperparameters, peak_lr: float) -> None:
    """Checks the reference of independent weight decay.

    Raises:
        ValueError: there is such decay, and `peak_lr` is not above 0.
    """
    if h.weight_decay > 0 and h.weight_decay_type == "independent" and not peak_lr > 0:
        raise ValueError(f"independent weight decay needs peak_lr > 0, got peak_lr={peak_lr}, lr={h.lr}")


def saved_values(group: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a group, without its parameters, as a checkpoint has them: plain numbers instead of numpy's and
    instead of learning rates in tensors, including the initial ones that schedules keep. Other entries of a user are
    unchanged."""
    rates = {"lr", *KEYS_OF_SCHEDULES}
    return {
        name: as_number(value) if name in rates else without_numpy(value)
        for name, value in group.items()
        if name != "params"
    }


def completed(group: Mapping[str, Any]) -> dict[str, Any]:
    """A saved group, completed with the defaults of the hyperparameters that it lacks because they are newer."""
    return {**{name: value for name, value in DEFAULTS.items() if name not in _OLDEST}, **group}


def require_state_of_an_optimizer(state_dict: Mapping[str, Any]) -> None:
    """Checks the outermost keys of a `state_dict()`.

    Raises:
        ValueError: it is not from an optimizer, for instance a whole checkpoint with the states of model and optimizer.
    """
    if not {"state", "param_groups"} <= state_dict.keys():
        raise ValueError(f"an optimizer's state has the keys 'state' and 'param_groups', got {sorted(state_dict)[:10]}")


def saved_groups(
    state_dict: Mapping[str, Any], groups: Sequence[Mapping[str, Any]], structures: Sequence[Mapping[str, object]]
) -> list[dict[str, Any]]:
    """Completed copies of the groups of a `state_dict()`, for the groups of an optimizer whose state has these
    `structures`.

    They share no value with the `state_dict()`, such as a list under a user's own key, which might be changed later.

    Raises:
        ValueError: it is not from an optimizer, or from another one; or its groups have other numbers of parameters, an
            unknown or illegal hyperparameter, or another value of one that shapes the state. Which ranks step a
            parameter may differ.
    """
    require_state_of_an_optimizer(state_dict)
    saved = [completed(group) for group in deepcopy(state_dict["param_groups"])]
    for group in saved:
        if "preconditioner" not in group:
            whose = next((name for key, name in _OTHER_OPTIMIZERS.items() if key in group), "another optimizer")
            raise ValueError(
                f"this is the state of {whose}, and no state of Shampoo: its groups have no 'preconditioner'. Begin "
                "with a new optimizer state, and keep the weights"
            )
    sizes, saved_sizes = ([len(group["params"]) for group in each] for each in (groups, saved))
    if sizes != saved_sizes:
        raise ValueError(f"checkpoint has groups of {saved_sizes} parameters, the optimizer of {sizes}")
    for group, structure in zip(saved, structures, strict=True):
        require_known_keys(group, is_live=True)
        h = Hyperparameters.of_group(group)
        require_structure(h, {name: value for name, value in structure.items() if name not in SHARING})
    return saved


def inherited(defaults: Mapping[str, Any], preconditioner: Preconditioner) -> dict[str, Any]:
    """The constructor's arguments if this member of the family uses them, else their defaults."""
    if preconditioner == defaults["preconditioner"]:
        return dict(defaults)
    reset = set(unused(preconditioner))
    takes_grafting = preconditioner in ("shampoo", "none")
    if not takes_grafting or (preconditioner == "none" and defaults["grafting"] == "none"):
        reset |= {"grafting"}
    if preconditioner in ("soap", "kl") and defaults["solver"] == "coupled_newton":
        reset |= {"solver"}
    return {name: DEFAULTS[name] if name in reset else value for name, value in defaults.items()}


def decay_per_step(h: Hyperparameters, peak_lr: float) -> float:
    """The share of the weights that decoupled or independent weight decay takes away."""
    if h.weight_decay == 0 or h.weight_decay_type == "l2":
        return 0.0
    return h.lr * h.weight_decay if h.weight_decay_type == "decoupled" else h.lr / peak_lr * h.weight_decay
