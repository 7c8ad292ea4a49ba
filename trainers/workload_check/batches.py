"""Batches as the checker compares them: by their tensors, and cut into examples."""

from __future__ import annotations

import hashlib
from typing import TypeAlias

import torch
from torch import Tensor

from trainers.checkpoints.tensor_file import memory_of
from trainers.workload.batches import placed_tensors, tensors_in, with_tensors
from trainers.workload_check.outcome import NotChecked

Layout: TypeAlias = dict[str, tuple[str, tuple[int, ...]]]
"""Each tensor in a batch, by its place: its type, and the shape of an example in it."""


def examples_of(batch: object) -> list[bytes]:
    """A digest of each example: row i of every tensor.

    Raises:
        NotChecked: the tensors do not have equally many rows.
    """
    tensors = list(tensors_in(batch))
    counts = {len(tensor) if tensor.ndim else 0 for tensor in tensors}
    if len(counts) != 1 or 0 in counts:
        raise NotChecked("the batches cannot be cut into examples")
    num_rows = counts.pop()
    parts = [(memory, len(memory) // num_rows) for memory in map(_memory_of, tensors)]
    return [_digest([memory[row * size : (row + 1) * size] for memory, size in parts]) for row in range(num_rows)]


def digest_of(batch: object) -> bytes:
    """A digest of all tensors of a batch, with their places, types and shapes."""
    named = [f"{path} {tensor.dtype} {tuple(tensor.shape)}".encode() for path, tensor in placed_tensors(batch)]
    return hashlib.sha256(b"\0".join([*named, _digest([_memory_of(part) for part in tensors_in(batch)])])).digest()


def layout_of(batch: object) -> Layout:
    """The type and shape of each tensor, without its rows."""
    return {path: (str(tensor.dtype), tuple(tensor.shape[1:])) for path, tensor in placed_tensors(batch)}


def rows_of(batch: object, begin: int, end: int) -> object:
    """The batch made of these rows of every tensor."""
    return with_tensors(batch, lambda tensor: tensor[begin:end])


def _memory_of(tensor: Tensor) -> memoryview:
    """The tensor's content, or a copy of it."""
    return memory_of(tensor.detach().cpu().contiguous().flatten().view(torch.uint8))


def _digest(parts: list[memoryview]) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(part)
    return digest.digest()
