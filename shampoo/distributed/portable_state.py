"""A `state_dict` as `torch.distributed.checkpoint` takes it: keys are strings, and counts are tensors.

Its loader writes tensors in place, but puts anything else under the string of its key, and unpickles it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


def to_portable(state_dict: Mapping[str, Any]) -> dict[str, Any]:
    """The portable form of an optimizer's `state_dict()`; tensors are shared."""
    return {**state_dict, "state": {str(key): _with_tensors(state) for key, state in state_dict["state"].items()}}


def from_portable(portable: Mapping[str, Any]) -> dict[str, Any]:
    """The `state_dict()` of a portable form; tensors are shared."""
    return {**portable, "state": {int(key): _with_counts(state) for key, state in portable["state"].items()}}


def _with_tensors(state: Mapping[str, Any]) -> dict[str, Any]:
    def portable(value: Any) -> Any:
        if isinstance(value, Mapping):
            return _with_tensors(value)
        return value if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.int64)

    return {name: portable(value) for name, value in state.items()}


def _with_counts(state: Mapping[str, Any]) -> dict[str, Any]:
    def plain(name: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            return _with_counts(value)
        return int(value) if name == "step" else value

    return {name: plain(name, value) for name, value in state.items()}
