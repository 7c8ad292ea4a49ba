"""Batches as the checker compares them: nested tuples, lists and dicts of tensors, cut into examples."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import TypeAlias

import torch
from torch import Tensor

from trainers.checkpoints.tensor_file import memory_of
from trainers.workload_check.outcome import NotChecked

Layout: TypeAlias = dict[str, tuple[str, tuple[int, ...]]]
"""Of each tensor in a batch, by its place: its type, and the shape of an example in it."""


def tensors_of(batch: object, path: str = "batch") -> Iterator[tuple[str, Tensor]]:
    """Every tensor of a batch with its place in it, e.g. `batch['images'][0]`."""
    match batch:
        case Tensor():
            yield path, batch
        case tuple() | list():
            for index, part in enumerate(batch):
                yield from tensors_of(part, f"{path}[{index}]")
        case dict():
            for key, part in batch.items():
                yield from tensors_of(part, f"{path}[{key!r}]")


def examples_of(batch: object) -> list[bytes]:
    """A digest of each example: row i of every tensor.

    Raises:
        NotChecked: the tensors do not have equally many rows.
    """
    tensors = [tensor for _, tensor in tensors_of(batch)]
    counts = {len(tensor) if tensor.ndim else 0 for tensor in tensors}
    if len(counts) != 1 or 0 in counts:
        raise NotChecked("the batches cannot be cut into examples")
    num_rows = counts.pop()
    parts = [(memory, len(memory) // num_rows) for memory in map(_memory_of, tensors)]
    return [_digest([memory[row * size : (row + 1) * size] for memory, size in parts]) for row in range(num_rows)]


def digest_of(batch: object) -> bytes:
    """A digest of all tensors of a batch, with their places, types and shapes."""
    named = [f"{path} {tensor.dtype} {tuple(tensor.shape)}".encode() for path, tensor in tensors_of(batch)]
    return hashlib.sha256(b"\0".join([*named, _digest([_memory_of(part) for _, part in tensors_of(batch)])])).digest()


def layout_of(batch: object) -> Layout:
    """The type and shape of each tensor, without its rows."""
    return {path: (str(tensor.dtype), tuple(tensor.shape[1:])) for path, tensor in tensors_of(batch)}


def rows_of(batch: object, begin: int, end: int) -> object:
    """The batch made of these rows of every tensor."""
    return _mapped(batch, lambda tensor: tensor[begin:end])


def copy_of(batch: object) -> object:
    """The batch with tensors of its own."""
    return _mapped(batch, lambda tensor: tensor.clone())


def _mapped(batch: object, change: Callable[[Tensor], Tensor]) -> object:
    match batch:
        case Tensor():
            return change(batch)
        case tuple() if hasattr(batch, "_make"):  # a named tuple
            return batch._make(_mapped(part, change) for part in batch)
        case tuple() | list():
            return type(batch)(_mapped(part, change) for part in batch)
        case dict():
            return {key: _mapped(part, change) for key, part in batch.items()}
        case _:
            return batch


def _memory_of(tensor: Tensor) -> memoryview:
    """The tensor's content, or a copy of it."""
    return memory_of(tensor.detach().cpu().contiguous().flatten().view(torch.uint8))


def _digest(parts: list[memoryview]) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(part)
    return digest.digest()
