"""The shape of a model from the header of a safetensors file: eight bytes of length, then JSON. Nothing here imports
torch, and no weights are read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from trainers.identity.kinds import shape_of_named
from trainers.identity.values import ReadShape

MAX_HEADER_BYTES = 100_000_000
"""As the format's own reader has it."""
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
    return shape_of_named(((names[name], sizes) for name, sizes in named.items()), frozen=frozen)


def _sizes(shape: object) -> tuple[int, ...]:
    if not isinstance(shape, list) or any(type(size) is not int or size < 0 for size in shape):
        raise ValueError(f"a tensor's shape is a list of sizes, got {shape!r:.80}")
    return tuple(shape)
