"""The usual split of a model's parameters: hidden matrices get the preconditioner, everything else steps plainly."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn
from torch.nn.parameter import is_lazy

from shampoo.torch_internals import is_flattened

PLAIN_MODULES: tuple[type[nn.Module], ...] = (nn.Embedding, nn.EmbeddingBag)
"""Modules whose matrices are tables: only some rows of each gradient are not zero, so a factor over the rows learns
nothing more than Adam's squares."""


def param_groups(
    model: nn.Module,
    *,
    precondition_head: bool = False,
    plain: Mapping[str, Any] | None = None,
    plain_modules: Iterable[type[nn.Module]] = PLAIN_MODULES,
) -> list[dict[str, Any]]:
    """Parameter groups for `Shampoo(param_groups(model), ...)`, each parameter once, frozen ones left out.

    - "matrices": weights with at least two sides larger than 1, with the optimizer's own hyperparameters;
    - "plain matrices": those of embeddings (and weights tied to them) and of the head, by plain AdamW;
    - "vectors": biases, norms and scalars, by plain AdamW without weight decay.

    Groups without a parameter are left out. The head is the last `nn.Linear` in the order of `model.modules()`.

    Args:
        precondition_head: put the head among the matrices; sensible if it is as small as other layers (an autoencoder),
            not for a vocabulary.
        plain: hyperparameters of both plain groups, such as `{"lr": 3e-4, "betas": (0.9, 0.95)}`.
        plain_modules: modules whose matrices step plainly.

    Raises:
        TypeError: it is not a module.
        ValueError: no parameter requires a gradient, or one has no shape yet, or all are shards of
            `FullyShardedDataParallel`, none of which is a matrix.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"param_groups takes a model, whose modules say what is a table or a head, got a {type(model).__name__}"
        )
    tables = tuple(plain_modules)
    linears = [module for module in model.modules() if isinstance(module, nn.Linear)]
    apart = {
        id(p) for module in model.modules() if isinstance(module, tables) for p in module.parameters(recurse=False)
    }
    if linears and not precondition_head:
        apart.add(id(linears[-1].weight))
    members: dict[str, list[nn.Parameter]] = {"matrices": [], "plain matrices": [], "vectors": []}
    for parameter in model.parameters():  # shared ones appear once
        if parameter.requires_grad:
            if is_lazy(parameter):
                raise ValueError(f"a {type(parameter).__name__} has no shape yet: run a batch through the model first")
            is_matrix = sum(size != 1 for size in parameter.shape) > 1
            kind = "vectors" if not is_matrix else "plain matrices" if id(parameter) in apart else "matrices"
            members[kind].append(parameter)
    if not any(members.values()):
        raise ValueError(f"{type(model).__name__} has no parameter that requires a gradient")
    if any(map(is_flattened, members["vectors"])) and not members["matrices"] + members["plain matrices"]:
        raise ValueError(
            f"FullyShardedDataParallel has made vectors of all {len(members['vectors'])} parameters: shard the model "
            "with torch.distributed.fsdp.fully_shard, which leaves matrices what they are"
        )
    arguments: dict[str, dict[str, Any]] = {
        "matrices": {},
        "plain matrices": {"preconditioner": "none", **(plain or {})},
        "vectors": {"preconditioner": "none", "weight_decay": 0.0, **(plain or {})},
    }
    return [{"name": kind, "params": group, **arguments[kind]} for kind, group in members.items() if group]
