"""Activation checkpointing: what a block computed on the way to its output is not kept for the backward pass, but
computed again there (arXiv 1604.06174)."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint


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
        return checkpoint(cls.forward, self, *args, use_reentrant=False, **kwargs)

    return type(cls.__name__, (cls,), {"forward": forward, "__module__": cls.__module__})
