"""The parameter groups of `LoraRite`: which parameters of a model are pairs, and the rules of a group."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from shampoo.distributed.layout import is_dtensor
from shampoo.group_rules import KEYS_OF_SCHEDULES, KEYS_OF_WRAPPERS, checked_tensors
from shampoo.lora.hyperparameters import NAMES, LoraRiteHyperparameters

FACTOR_NAMES: Mapping[str, str] = {
    "lora_A": "lora_B",
    "lora_embedding_A": "lora_embedding_B",
    "lora_a": "lora_b",
}
"""The part of a name that marks a first factor, and the one that marks a second factor: peft's, and torchtune's."""

_KNOWN_KEYS = frozenset(NAMES) | {"params", "param_names", "name"} | KEYS_OF_SCHEDULES | KEYS_OF_WRAPPERS


def lora_param_groups(model: nn.Module) -> list[dict[str, Any]]:
    """Parameter groups for `LoraRite(lora_param_groups(model), ...)`, each trained parameter once.

    - "pairs": factors of low-rank adapters, A and B alternating; a pair with one frozen factor is also a pair;
    - "plain matrices": everything else with two or more sides, such as a head, by plain AdamW;
    - "vectors": biases, norms and scalars, by plain AdamW without weight decay.

    Groups without a parameter are left out.

    Args:
        model: its modules name factors as peft does, `lora_A` and `lora_B`, or as torchtune, `lora_a` and `lora_b`.

    Raises:
        ValueError: it has no pair with a factor that is trained.
    """
    named = dict(model.named_parameters())  # shared ones appear once
    pairs = [(first, second) for first, second in _pairs_of(named) if first.requires_grad or second.requires_grad]
    if not pairs:
        raise ValueError(
            f"{type(model).__name__} has no trained pair of low-rank factors, which would be named "
            f"{' or '.join(f'{first} and {second}' for first, second in FACTOR_NAMES.items())}"
        )
    factors = [factor for pair in pairs for factor in pair]
    taken = {id(factor) for factor in factors}
    others = [parameter for parameter in named.values() if parameter.requires_grad and id(parameter) not in taken]
    groups: list[dict[str, Any]] = [
        {"name": "pairs", "params": factors},
        {"name": "plain matrices", "params": [p for p in others if _is_matrix(p)], "paired": False},
        {"name": "vectors", "params": [p for p in others if not _is_matrix(p)], "paired": False, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def _is_matrix(parameter: Tensor) -> bool:
    return sum(size != 1 for size in parameter.shape) > 1


def _pairs_of(named: Mapping[str, nn.Parameter]) -> list[tuple[nn.Parameter, nn.Parameter]]:
    found = []
    for name, parameter in named.items():
        parts = name.split(".")
        for index, part in enumerate(parts):
            if part in FACTOR_NAMES:
                second = named.get(".".join([*parts[:index], FACTOR_NAMES[part], *parts[index + 1 :]]))
                if second is not None and parameter.ndim > 1 and second.ndim > 1:  # a factor's bias is not a factor
                    found.append((parameter, second))
    return found


def require_known_keys(group: Mapping[str, Any], *, is_live: bool = False) -> None:
    """Checks the keys of a group; those of a live one as `shampoo.group_rules.require_known_keys` does.

    Raises:
        ValueError: one is not a hyperparameter; the message has the nearest one.
    """
    for name, value in group.items():
        if name not in _KNOWN_KEYS and not (is_live and _nearest(name) is None):
            raise ValueError(f"unknown hyperparameter {name!r} = {value!r}{_hint(name)}")


def refuse_arguments(unknown: Mapping[str, object]) -> None:
    """Refuses keyword arguments that the optimizer does not have.

    Raises:
        TypeError: there is one; the message has the nearest argument that exists.
    """
    for name, value in unknown.items():
        raise TypeError(f"LoraRite got an unexpected keyword argument {name!r} = {value!r}{_hint(name)}")


def _hint(name: object) -> str:
    nearest = _nearest(name)
    return f" (known: {', '.join(NAMES)})" if nearest is None else f", did you mean {nearest!r}?"


@functools.cache  # each step checks every key of a wrapper
def _nearest(name: object) -> str | None:
    return next(iter(difflib.get_close_matches(str(name), NAMES, n=1)), None)


def require_params(params: Sequence[object], *, paired: bool) -> None:
    """Checks the parameters of a group.

    Raises:
        ValueError: one is not a real floating-point tensor, is spread over ranks, or appears twice; or they should be
            pairs and are not.
    """
    tensors = checked_tensors(params)
    for index, param in enumerate(tensors):
        if is_dtensor(param):
            raise ValueError(
                f"parameter {index} of shape {tuple(param.shape)} is a DTensor, as of FSDP2, and LoraRite needs both "
                "factors of a pair whole: train with DDP"
            )
    if not paired:
        return
    if len(tensors) % 2:
        raise ValueError(f"params must be pairs, A and B in turns, got {len(tensors)} parameters; {_HOW}")
    for index, (first, second) in enumerate(zip(tensors[::2], tensors[1::2], strict=True)):
        shapes = tuple(first.shape), tuple(second.shape)
        if 0 in (first.numel(), second.numel()):
            raise ValueError(
                f"parameters {2 * index} and {2 * index + 1} are a pair with no elements, got {shapes[0]} and "
                f"{shapes[1]}: leave it out"
            )
        if min(first.ndim, second.ndim) < 2 or first.shape[0] != second[0].numel():
            raise ValueError(
                f"parameters {2 * index} and {2 * index + 1} must be a pair of factors (r, in) and (out, r), got "
                f"{shapes[0]} and {shapes[1]}; {_HOW}"
            )
        if first.dtype != second.dtype or first.device != second.device:
            raise ValueError(
                f"parameters {2 * index} and {2 * index + 1} must have one dtype and device, got {first.dtype} on "
                f"{first.device} and {second.dtype} on {second.device}"
            )


_HOW = "shampoo.lora_param_groups(model) finds them, and leaves other parameters to AdamW"


def require_saved_groups(saved: Sequence[Mapping[str, Any]], groups: Sequence[Mapping[str, Any]]) -> None:
    """Checks that the groups of a checkpoint fit those of an optimizer.

    Raises:
        ValueError: they are another optimizer's, have other numbers of parameters or pairs in other places, or an
            unknown or illegal hyperparameter.
    """
    if any("clip_unmagnified_grad" not in group for group in saved):
        raise ValueError(
            "this is the state of another optimizer, and no state of LoraRite: its groups have no "
            "'clip_unmagnified_grad'. Begin with a new optimizer state, and keep the weights"
        )
    sizes, saved_sizes = ([(len(g["params"]), g["paired"]) for g in each] for each in (groups, saved))
    if sizes != saved_sizes:
        raise ValueError(f"checkpoint has groups of (parameters, paired) {saved_sizes}, the optimizer of {sizes}")
    for group in saved:
        require_known_keys(group, is_live=True)
        LoraRiteHyperparameters.of_group(group)
