"""The digest of a model: the parameters and modules it is made of, whatever their values and their order."""

from __future__ import annotations

from collections import Counter

from torch import Tensor, nn

from trainers.identity.values import digest_of

WITHOUT_TRACE = (
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AlphaDropout,
    nn.FeatureAlphaDropout,
    nn.Identity,
)
"""Modules that do not tell models apart: how much is dropped is a hyperparameter, and may be nothing."""


def model_digest(model: nn.Module) -> str:
    """The digest of the multiset of a model's parameters and of its modules without parameters.

    A parameter counts with its kind (`Linear.weight`: the class of its module and its name there), shape, dtype and
    whether it is trained; one that modules share counts once. A module that has neither parameters nor children counts
    with its class, so that activations and poolings tell models apart, unless it is one of `WITHOUT_TRACE`. Nothing
    depends on the device: a model on the meta device has the same digest.

    Args:
        model: as the workload builds it, before it is sharded, compiled or wrapped.
    """
    kinds: Counter[tuple[str, tuple[int, ...], str, bool]] = Counter()
    seen: set[Tensor] = set()
    for module in model.modules():
        own = list(module.named_parameters(recurse=False))
        for name, parameter in own:
            if parameter in seen:
                continue
            seen.add(parameter)
            kind = f"{type(module).__name__}.{name}"
            kinds[kind, tuple(parameter.shape), str(parameter.dtype), parameter.requires_grad] += 1
        is_leaf = not own and next(module.children(), None) is None
        if is_leaf and not isinstance(module, WITHOUT_TRACE):
            kinds[type(module).__name__, (), "", False] += 1
    return digest_of(sorted([*kind, count] for kind, count in kinds.items()))
