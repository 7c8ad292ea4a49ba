"""Tensors of which each rank holds a part."""

from __future__ import annotations

from torch import Tensor


def local_part(tensor: Tensor) -> Tensor:
    """What this rank holds of a tensor: of a DTensor its shard, of any other tensor all of it."""
    # Not isinstance: importing DTensor takes half as long as torch itself, and most trials have none.
    to_local = getattr(tensor, "to_local", None)
    return tensor if to_local is None else to_local()
