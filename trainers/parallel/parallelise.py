"""The way of a trial's config to train a model on all its ranks together."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import chain

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from trainers.config import InvalidConfig, TrialConfig
from trainers.parallel.ddp import BUCKET_BYTES, ReplicatedModel
from trainers.parallel.model_blocks import blocks_of
from trainers.parallel.parallel_model import ParallelModel
from trainers.precision import DTYPES
from trainers.ranks.context import RankContext
from trainers.torch_internals import send_from_first_rank
from trainers.workload.protocol import Workload

__all__ = ["ParallelModel", "parallelise"]


def parallelise(model: nn.Module, workload: Workload, config: TrialConfig, context: RankContext) -> ParallelModel:
    """Shares `model`, which is on the context's device, between the ranks as the config says. All ranks start from
    rank 0's parameters and buffers. Call it before the optimizer is built, which gets the parameters of the result's
    `model`; the model itself is changed, too.

    Modules, made one inside the other: recomputed (activation checkpointing), compiled, sharded or replicated.

    Raises:
        InvalidConfig: the config does not fit the model or the world size; the message names the field.
    """
    mode = config.parallelism.mode if context.world_size > 1 else "ddp"
    _check(model, config, context)
    if context.world_size > 1:
        send_from_first_rank(model, bucket_bytes=BUCKET_BYTES)
    blocks = blocks_of(workload, model) if mode in ("fsdp2", "hsdp") or config.activation_checkpointing else []
    if config.activation_checkpointing:
        from trainers.parallel.recomputation import recompute_in_backward

        if not blocks:
            raise InvalidConfig("activation_checkpointing", "the model has no blocks whose activations to recompute")
        recompute_in_backward(blocks)
    kind = _kind(config, context, mode) if config.compile else None
    if mode == "ddp":
        call = None
        if kind is not None:
            from trainers.parallel.compilation import CompiledModel

            call = CompiledModel(model, kind=kind)
        return ReplicatedModel(model, context, call=call, compression=config.compression, seed=config.seed)

    from trainers.parallel.device_meshes import device_mesh

    mesh = device_mesh(
        device_type=torch.device(context.device).type,
        world_size=context.world_size,
        shard_size=config.parallelism.shard_size or context.world_size,
    )
    dtype = DTYPES[config.precision]
    if mode == "simple_fsdp":
        from trainers.parallel.simple_fsdp import SimplyShardedModel

        return SimplyShardedModel(model, context, mesh=mesh, dtype=dtype, kind=kind)

    from trainers.parallel.fsdp2 import FullyShardedModel

    if kind is not None:
        from trainers.parallel.compilation import compile_blocks

        compile_blocks(blocks, kind=kind)
    return FullyShardedModel(model, context, mesh=mesh, blocks=blocks, dtype=dtype)


def _check(model: nn.Module, config: TrialConfig, context: RankContext) -> None:
    if context.world_size == 1:
        if context.checkpoint_directory is not None:
            _require_loadable(model)
        return
    mode, shard_size = config.parallelism.mode, config.parallelism.shard_size
    if shard_size is not None and context.world_size % shard_size != 0:
        raise InvalidConfig(
            "parallelism.shard_size", f"must divide the world size {context.world_size}, got {shard_size}"
        )
    tables = (nn.Embedding, nn.EmbeddingBag)
    sparse = [name for name, module in model.named_modules() if isinstance(module, tables) and module.sparse]
    if sparse:
        raise InvalidConfig(
            "parallelism.mode",
            f"{mode} averages dense gradients over ranks, and those of {', '.join(sparse)} are sparse: make them with "
            "sparse=False, or train on one rank",
        )
    shapeless = [name for name, x in chain(model.named_parameters(), model.named_buffers()) if is_lazy(x)]
    if shapeless:
        raise InvalidConfig(
            "workload",
            f"{', '.join(shapeless)} have no shape yet, which ranks have to share: let build_model run a batch through "
            "the model",
        )
    expanded = [name for name, x in chain(model.named_parameters(), model.named_buffers()) if _is_expanded(x)]
    if expanded:
        raise InvalidConfig(
            "parallelism.mode",
            f"{mode} writes the first rank's parameters and buffers into those of all ranks, and elements of "
            f"{', '.join(expanded)} share memory, as in an expanded view: make them with contiguous(), or train on one "
            "rank",
        )
    scalars = [name for name, parameter in model.named_parameters() if parameter.ndim == 0]
    if mode in ("fsdp2", "hsdp"):
        _require_shardable(model, mode)
    if mode == "simple_fsdp":
        recurrent = [name for name, module in model.named_modules() if isinstance(module, nn.RNNBase)]
        if recurrent:
            raise InvalidConfig(
                "parallelism.mode",
                f"simple_fsdp cannot shard {', '.join(recurrent)}, which keeps its weights beside its attributes: use "
                "fsdp2",
            )
    if config.compression is not None and scalars:
        raise InvalidConfig("compression", f"is not for parameters without dimensions ({', '.join(scalars)})")


def _require_loadable(model: nn.Module) -> None:
    """Checks that a checkpoint can be loaded into the model: now, and not when the trial is resumed.

    Raises:
        InvalidConfig: it cannot; the message has the names.
    """
    # What a module that has seen no batch keeps has no shape yet.
    saved = {name: x for name, x in model.state_dict().items() if isinstance(x, Tensor) and not is_lazy(x)}
    expanded = [name for name, x in saved.items() if _is_expanded(x)]
    if expanded:
        raise InvalidConfig(
            "workload",
            f"no checkpoint can be loaded into {', '.join(expanded)}, whose elements share memory, as in an expanded "
            "view: make them with contiguous(), or register buffers with persistent=False, which no checkpoint has",
        )


def _is_expanded(x: Tensor) -> bool:
    return x.layout is torch.strided and any(n > 1 and s == 0 for n, s in zip(x.shape, x.stride(), strict=True))


_UNSHARDABLE: tuple[tuple[str, Callable[[nn.Parameter], bool], str], ...] = (
    ("without dimensions", lambda parameter: parameter.ndim == 0, "give them the shape (1,), or use simple_fsdp"),
    ("without elements", lambda parameter: parameter.numel() == 0, "leave them out of the model, or use ddp"),
    (
        "that are not contiguous",
        lambda parameter: not parameter.is_contiguous(),
        "lay them out in row-major order, as a transpose or channels_last is not, or use ddp",
    ),
)
"""The parameters that `fully_shard` does not take, in words and as a predicate, and what to do."""


def _require_shardable(model: nn.Module, mode: str) -> None:
    """Checks the parameters of a model for `fully_shard`, whose own errors do not name them.

    Raises:
        InvalidConfig: it does not take one; the message has the names.
    """
    for what, is_wrong, advice in _UNSHARDABLE:
        names = [name for name, parameter in model.named_parameters() if is_wrong(parameter)]
        if names:
            raise InvalidConfig(
                "parallelism.mode", f"{mode} cannot shard parameters {what} ({', '.join(names)}): {advice}"
            )


def _kind(config: TrialConfig, context: RankContext, mode: str) -> str:
    """All that compiled code depends on, beside the model: trials of one kind compile once."""
    return json.dumps(
        {
            "workload": config.workload,
            "workload_options": dict(config.workload_options),
            "batch_size": config.batch_size // (context.world_size * config.accumulation_steps),
            "precision": config.precision,
            "activation_checkpointing": config.activation_checkpointing,
            "mode": mode,
            "world_size": context.world_size,
            "shard_size": config.parallelism.shard_size,
            "device": context.device,
        },
        sort_keys=True,
    )
