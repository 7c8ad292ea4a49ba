"""Activations of a step: what a forward pass keeps for the backward pass, measured on a few examples on the CPU."""

from __future__ import annotations

from collections.abc import Generator

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from trainers.config import TrialConfig
from trainers.parallel.model_blocks import blocks_of
from trainers.parallel.recomputation import recompute_in_backward
from trainers.precision import DTYPES
from trainers.workload.batches import tensors_in, train_batches, with_tensors
from trainers.workload.protocol import Workload
from trainers.workload.training_loss import training_loss

MAX_BYTES = 2**30
"""Most bytes of a model that is built here, and of what a forward pass keeps: who estimates must not run out of memory
himself."""

_FEW, _MORE = 2, 4
"""Examples of the batches that are measured. Batch normalisation takes no batch of one."""


class TooLarge(ValueError):
    """The model, or what its forward pass keeps of very few examples, is too large to be measured here."""


def activation_bytes(config: TrialConfig, workload: Workload, *, model_bytes: int, world_size: int) -> int:
    """Bytes that one rank's part of a batch takes in a step: the batch, and the tensors that autograd keeps for the
    backward pass, each storage once; parameters excluded.

    Two small batches tell what comes with each example. On a GPU other kernels run, and compiled code keeps less. With
    recomputation, what blocks get and compute again is not counted.

    Args:
        config: the trial's config.
        workload: the workload of the config.
        model_bytes: bytes of its model's parameters and buffers.
        world_size: number of ranks that share a batch.

    Raises:
        TooLarge: it is not measured here.
    """
    if model_bytes > MAX_BYTES:
        raise TooLarge(
            f"activations are measured of models up to {MAX_BYTES / 2**20:,.0f} MiB, this one has "
            f"{model_bytes / 2**20:,.0f} MiB"
        )
    num_wanted = config.batch_size // (world_size * config.accumulation_steps)
    with torch.random.fork_rng(devices=[]):
        model = workload.build_model()
        if config.activation_checkpointing:
            recompute_in_backward(blocks_of(workload, model))
        model.train()
        batch = _first_batch(workload, config.seed, min(_MORE, num_wanted))

        def measured(num_examples: int) -> int:
            examples = with_tensors(batch, lambda tensor: tensor[:num_examples])
            with torch.autocast("cpu", dtype=DTYPES[config.precision], enabled=config.precision != "float32"):
                return kept_bytes(model, workload, examples)

        if num_wanted <= _FEW:
            return measured(num_wanted)
        few = measured(_FEW)
        other = min(_MORE, num_wanted) if 2 * few <= MAX_BYTES else 1
        per_example = (measured(other) - few) / (other - _FEW)
    return round(few + (num_wanted - _FEW) * per_example)


def kept_bytes(model: nn.Module, workload: Workload, batch: object) -> int:
    """Bytes that autograd keeps for the backward pass of the batch's loss, and those of the batch.

    Raises:
        TooLarge: they are more than `MAX_BYTES`.
    """
    given = list(tensors_in(batch))
    known = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers(), *given)}
    total = sum(tensor.nbytes for tensor in given)

    def keep(tensor: Tensor) -> Tensor:
        nonlocal total
        storage = tensor.untyped_storage()
        address = storage.data_ptr()
        if address not in known:
            known.add(address)
            total += storage.nbytes()
            if total > MAX_BYTES:
                raise TooLarge(f"activations of a few examples take more than {MAX_BYTES / 2**20:,.0f} MiB")
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        # It holds what is kept, so that no other storage comes to lie there.
        loss = training_loss(workload, model, batch)
    del loss
    return total


def _first_batch(workload: Workload, seed: int, num_examples: int) -> object:
    batches = train_batches(workload, batch_size=num_examples, seed=seed, rank=0, world_size=1, start_step=0)
    try:
        return next(batches)
    finally:
        if isinstance(batches, Generator):
            batches.close()
