"""Making everything fail that waits for a CUDA device."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def syncs_are_errors() -> Iterator[None]:
    """Inside, an operation that waits for the device raises RuntimeError, as far as torch notices such."""
    with warnings.catch_warnings():
        # torch says once, when the mode is set, that it is a prototype; as an error that would leave it set.
        warnings.filterwarnings("ignore", message="Synchronization debug mode")
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")
