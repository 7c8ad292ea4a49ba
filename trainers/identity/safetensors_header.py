"""The shape of a model from the header of a safetensors file: eight bytes of length, then JSON. Nothing here imports
torch, and no weights are read, but those of a table and a head that may be one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainers.identity.kinds import may_be_tied, shape_of_named
from trainers.identity.values import ReadShape

MAX_HEADER_BYTES = 100_000_000
"""Longest header that is read: the limit of the format's own reader."""
BLOCK_BYTES = 2**20
"""Read at once of tensors that are compared: the first block tells most apart."""
NO_PARAMETERS = ("BOOL", "I64")
"""Types of numbers that only buffers have, such as masks and positions."""


def shape_of_safetensors(path: Path, *, frozen: Sequence[str] = ()) -> ReadShape:
    """The shape of the model whose weights a safetensors file holds.

    Args:
        frozen: patterns of the names of parameters that are not trained, which a file does not say.

    Raises:
        ValueError: it is no such file, or `frozen` leaves nothing or is of nothing; the message says what is wrong.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= MAX_HEADER_BYTES:
            raise ValueError(f"{path} is no safetensors file: its header would have {length} bytes")
        text = file.read(length)
    try:
        header = json.loads(text)
        named = {
            name: _sizes(entry["shape"])
            for name, entry in header.items()
            if name != "__metadata__" and entry.get("dtype") not in NO_PARAMETERS
        }
        names = {name: [name] for name in named}
        for other, kept in dict(header.get("__metadata__", {})).items():
            # `safetensors.torch.save_model` notes there under which name it kept what has several.
            if kept in named and other not in named:
                names[kept].append(other)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} is no safetensors file: {error!r:.200}") from error
    typed = {name: (sizes, header[name].get("dtype")) for name, sizes in named.items()}
    tied = [pair for pair in may_be_tied(typed) if _are_equal(path, 8 + length, *(header[name] for name in pair))]
    return shape_of_named(((names[name], sizes) for name, sizes in named.items()), frozen=frozen, tied=tied)


def _are_equal(path: Path, begin: int, one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """True if two tensors have the same bytes; not of constants, as zeros, which are equal without being one.

    Args:
        begin: the tensors' beginning, in bytes from that of the file.
    """
    start, end = _offsets(one)
    other_start, other_end = _offsets(other)
    if start >= end or end - start != other_end - other_start:
        return False
    varies = False
    with path.open("rb") as file:
        for at in range(0, end - start, BLOCK_BYTES):
            size = min(BLOCK_BYTES, end - start - at)
            file.seek(begin + start + at)
            block = file.read(size)
            file.seek(begin + other_start + at)
            if file.read(size) != block or len(block) != size:
                return False
            varies = varies or block.count(block[:1]) != size
    return varies


def _offsets(entry: Mapping[str, Any]) -> tuple[int, int]:
    """The begin and end of a tensor in its file; twice 0 if the header does not say."""
    given = entry.get("data_offsets")
    if not isinstance(given, list) or len(given) != 2 or any(type(at) is not int or at < 0 for at in given):
        return 0, 0
    return given[0], given[1]


def _sizes(shape: object) -> tuple[int, ...]:
    if not isinstance(shape, list) or any(type(size) is not int or size < 0 for size in shape):
        raise ValueError(f"a tensor's shape is a list of sizes, got {shape!r:.80}")
    return tuple(shape)
