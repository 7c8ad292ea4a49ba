"""Copying optimizer state out of and into the stacked buckets, and checking that it fits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor


def own_memory(state: Mapping[str, Any]) -> dict[str, Any]:
    """A copy whose tensors share no memory: a view would pickle its whole bucket."""
    return {name: value.clone() if isinstance(value, Tensor) else value for name, value in state.items()}


def copy_state(source: Mapping[str, Any], target: dict[str, Any]) -> None:
    """Writes a parameter's state into its views of the buckets; other entries are added."""
    for name, value in source.items():
        here = target.get(name)
        if isinstance(here, Tensor):
            here.copy_(value)
        else:
            target[name] = value if here is None else _as_count(value)


def require_same_layout(source: Mapping[str, Any], target: Mapping[str, Any], *, parameter: object) -> None:
    """Checks that a saved state fits its target.

    Raises:
        ValueError: a name, shape, dtype or count differs; the message says which.
    """
    if source.keys() != target.keys():
        lacking, beside = sorted(target.keys() - source.keys()), sorted(source.keys() - target.keys())
        raise ValueError(
            f"state of parameter {parameter} must hold what the optimizer's does: it lacks {lacking}, and has {beside} "
            "beside"
        )
    for name, expected in target.items():
        found = source[name]
        if isinstance(expected, Tensor):
            if not isinstance(found, Tensor) or found.shape != expected.shape or found.dtype != expected.dtype:
                described = f"{found.dtype} {tuple(found.shape)}" if isinstance(found, Tensor) else repr(found)
                raise ValueError(
                    f"state {name!r} of parameter {parameter} is {described}, "
                    f"expected {expected.dtype} {tuple(expected.shape)}"
                )
        elif _as_count(found) is None:
            raise ValueError(f"state {name!r} of parameter {parameter} must be a count, got {found!r}")


def take_blocks(source: Mapping[str, Any], blocks: Mapping[str, Tensor], *, parameter: object) -> dict[str, Any]:
    """The state of a part, without the entries that say which blocks it covers.

    Raises:
        ValueError: it covers other blocks than `blocks`.
    """
    for name, expected in blocks.items():
        found = source.get(name)
        if not isinstance(found, Tensor) or found.tolist() != expected.tolist():
            raise ValueError(
                f"state of parameter {parameter} is of other blocks: {name} is {found!r}, expected {expected.tolist()}"
            )
    return {name: x for name, x in source.items() if name not in blocks}


def _as_count(value: Any) -> int | None:
    """A count as an integer, also if it is a tensor, like the step counts of torch's own optimizers; None if it is not
    a count."""
    number = value.item() if isinstance(value, Tensor) and value.numel() == 1 else value
    is_whole = isinstance(number, int | float) and not isinstance(number, bool) and number >= 0 and number % 1 == 0
    return int(number) if is_whole else None
