"""The sizes of the tensors that a model is built of, where no tensor can have them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

MAX_BYTES = 2**63 - 1
"""More are beyond what torch counts in."""

_FACTORIES = frozenset({torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn})
"""Functions that parameters and buffers are made by."""


class ImpossibleSizes(Exception):
    """A tensor was to have sizes that none can have; the message has them."""


class RefusesImpossibleSizes(TorchFunctionMode):
    """Tells torch's refusals of sizes from all other errors of code that builds a model: it raises the same classes for
    what only tensors without data cannot do.

    Raises:
        ImpossibleSizes: in place of torch's own error.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = kwargs or {}
        try:
            return func(*args, **given)
        except (RuntimeError, TypeError) as error:
            why = _why_impossible(args, given) if func in _FACTORIES else None
            if why is None:
                raise
            raise ImpossibleSizes(why) from error


def _why_impossible(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
    """The fault of the sizes that a tensor was to have; None: they have none, or there are none among the arguments."""
    first = kwargs.get("size", args[0] if args and isinstance(args[0], Sequence) else args)
    sizes = list(first)
    if not all(isinstance(size, int) for size in sizes):
        return None
    if any(size < 0 for size in sizes):
        return f"a tensor of sizes {sizes}, which must not be negative"
    itemsize = (kwargs.get("dtype") or torch.get_default_dtype()).itemsize
    if math.prod(sizes) * itemsize > MAX_BYTES or max(sizes, default=0) > MAX_BYTES:
        return f"a tensor of sizes {sizes}, which is more than any machine holds"
    return None
