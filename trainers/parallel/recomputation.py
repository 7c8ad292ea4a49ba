"""Activation checkpointing: what a block computed on the way to its output is not kept for the backward pass, but
computed again there (arXiv 1604.06174)."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from trainers.parallel.model_blocks import with_running_statistics
from trainers.torch_internals import NormWithStatistics


def recompute_in_backward(blocks: Iterable[nn.Module]) -> None:
    """Makes each block compute its activations again in the backward pass, with the same random numbers (dropout) and
    the same autocast. Names of modules and parameters stay; a block's class becomes a subclass of what it was.

    Costs one more forward pass of the blocks per step, and saves what they keep but their inputs.
    """
    for block in blocks:
        block.__class__ = _recomputing(type(block))  # type: ignore[arg-type]  # classes are hashable


@functools.cache  # one class for all modules of a kind: compiled code is specialised on it
def _recomputing(cls: type[nn.Module]) -> type[nn.Module]:
    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        norms = with_running_statistics(self)
        # Compiled code writes a forward pass's statistics once, at its end, whatever it computes again.
        if not norms or torch.compiler.is_compiling():
            return checkpoint(cls.forward, self, *args, use_reentrant=False, **kwargs)

        def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
            return nullcontext(), _statistics_left_alone(norms)

        return checkpoint(cls.forward, self, *args, use_reentrant=False, context_fn=contexts, **kwargs)

    return type(cls.__name__, (cls,), {"forward": forward, "__module__": cls.__module__})


@contextmanager
def _statistics_left_alone(norms: Sequence[NormWithStatistics]) -> Iterator[None]:
    """Batch normalisations normalise as ever inside, but do not count the batch a second time.

    Their running statistics stay in use, with a weight of 0 for the batch: without them the backward pass would find
    fewer tensors than the forward pass kept.
    """
    before = [(norm.momentum, norm.num_batches_tracked) for norm in norms]
    for norm in norms:
        norm.momentum, norm.num_batches_tracked = 0.0, None
    try:
        yield
    finally:
        for norm, (momentum, num_batches) in zip(norms, before, strict=True):
            norm.momentum, norm.num_batches_tracked = momentum, num_batches
