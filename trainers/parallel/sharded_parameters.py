"""The error of a loss that uses parameters of which each rank holds a part."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

ADVICE = (
    "the loss uses a parameter outside of the call of its module, where this rank has only its part of it. Call the "
    "whole model or its blocks, also for a part that a step may leave out (0 times the sum of what it gives), or train "
    'with parallelism {"mode": "ddp"}'
)


@contextmanager
def told_of_parts() -> Iterator[None]:
    """Adds to torch's error, which speaks of a mixture of classes, what the loss has to do."""
    try:
        yield
    except RuntimeError as error:  # torch has no class of its own for it
        if "mixed torch.Tensor and DTensor" in str(error):
            error.args = (f"{error} ({ADVICE})",)
        raise
