"""The `size` option: a word such as `tiny` that stands for the shape of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

Shape = TypeVar("Shape")


def shape_of_size(size: object, shapes: Mapping[str, Shape]) -> Shape:
    """The shape that a workload gives the size.

    Raises:
        ValueError: there is no such size; the message lists those there are.
    """
    if not isinstance(size, str) or size not in shapes:
        raise ValueError(f"size must be one of {', '.join(shapes)}, got {size!r}")
    return shapes[size]
