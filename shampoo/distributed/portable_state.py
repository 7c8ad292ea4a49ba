"""A `state_dict` as `torch.distributed.checkpoint` takes it: keys are strings, and counts are tensors.

Its loader writes tensors in place, but unpickles anything else, and stores it under its key as a string. If a rank has
only some rows of a tensor, they are a `BlockRows`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from shampoo.distributed.block_rows import BLOCKS, BlockRows, RowRuns


def to_portable(state_dict: Mapping[str, Any], rows: Mapping[int, Mapping[str, RowRuns]]) -> dict[str, Any]:
    """The portable form of an optimizer's `state_dict()`; tensors are shared.

    `rows`, by parameter and name of a tensor: the rows that this rank has, if it does not have all.

    Raises:
        ValueError: it holds entries that belong to no parameter.
    """
    state: dict[str, Any] = {}
    keys = {key for group in state_dict["param_groups"] for key in group["params"]}
    if beside := sorted(map(repr, state_dict["state"].keys() - keys)):
        raise ValueError(
            f"the optimizer's state holds {', '.join(beside)}, which is of no parameter, and "
            "`torch.distributed.checkpoint` takes states of parameters alone: save it beside the optimizer's"
        )
    for key, held in state_dict["state"].items():
        if not held:
            continue  # other ranks own the parameter
        name = _name_of_part(held)
        plain = held if name is None else {x: held[name][x] for x in held[name] if not x.startswith(BLOCKS)}
        state[str(key)] = _with_tensors(plain, rows.get(key, {}))
    return {**state_dict, "state": state}


def from_portable(portable: Mapping[str, Any], like: Mapping[str, Any]) -> dict[str, Any]:
    """The `state_dict()` of a portable form; tensors are shared.

    `like`: the `state_dict()` that it is for, which has the names of the parts that ranks have of a parameter.
    """
    state: dict[int, Any] = {}
    for text, held in portable["state"].items():
        key = int(text)
        plain = _with_counts(held)
        here = like["state"].get(key, {})
        name = _name_of_part(here)
        if name is not None:
            plain = {name: {**plain, **{x: here[name][x] for x in here[name] if x.startswith(BLOCKS)}}}
        state[key] = plain
    return {**portable, "state": state}


def _name_of_part(state: Mapping[str, Any]) -> str | None:
    """The name of the part, if a parameter's state is that of some of its blocks; else None."""
    for name, held in state.items():
        if isinstance(held, Mapping) and any(x.startswith(BLOCKS) for x in held):
            return name
    return None


def _with_tensors(state: Mapping[str, Any], rows: Mapping[str, RowRuns]) -> dict[str, Any]:
    def portable(name: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            return _with_tensors(value, {})
        if name in rows:
            return BlockRows(value, rows[name])
        return value if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.int64, device="cpu")

    return {name: portable(name, value) for name, value in state.items()}


def _with_counts(state: Mapping[str, Any]) -> dict[str, Any]:
    def plain(name: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            return _with_counts(value)
        if isinstance(value, BlockRows):
            return value.local
        return int(value) if name == "step" else value

    return {name: plain(name, value) for name, value in state.items()}
