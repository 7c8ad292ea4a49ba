"""The precision of a step: that of its tensors, even if the whole training step runs under `torch.autocast`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor
from torch.amp.autocast_mode import is_autocast_available


@contextlib.contextmanager
def own_precision(tensors: Iterable[Tensor]) -> Iterator[None]:
    """Switches autocast off on the devices of these tensors. With it, products would be in bfloat16, or refused if
    another operand is float32; and the threads of a step, which do not inherit autocast, would compute differently from
    the caller's thread."""
    with contextlib.ExitStack() as stack:
        for device_type in {tensor.device.type for tensor in tensors}:
            if is_autocast_available(device_type) and torch.is_autocast_enabled(device_type):
                stack.enter_context(torch.autocast(device_type, enabled=False))
        yield
