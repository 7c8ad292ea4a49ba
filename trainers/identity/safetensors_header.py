"""The shape of a model from the header of a safetensors file: eight bytes of length, then JSON. Nothing here imports
torch, and no weights are read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from trainers.identity.values import ModelShape, ParameterKind, ParameterShape

MAX_HEADER_BYTES = 100_000_000
"""As the format's own reader has it."""
EMBEDDING_WORDS = ("embed", "embd", "wte", "wpe", "tok_emb", "lookup")
"""Parts of the names that tables of embeddings have in published models."""
ADAPTER_WORD = "lora_"
"""The beginning of the part of a name that says whose a factor of a low-rank adapter is, as peft and torchtune have
it."""
NOT_TRAINED = ("running_mean", "running_var", "num_batches_tracked", "inv_freq", "position_ids")
"""Last parts of the names of buffers, which state dicts hold beside parameters."""
NO_PARAMETERS = ("BOOL", "I64")
"""Types of numbers that only buffers have, such as masks and positions."""
MIN_MASK_SIDE = 32
"""Positions of the shortest causal mask."""


def shape_of_safetensors(path: Path) -> ModelShape:
    """The shape of the model whose weights a safetensors file holds.

    Raises:
        ValueError: it is no such file; the message says what is wrong.
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
    return shape_of_named((names[name], sizes) for name, sizes in named.items())


def _sizes(shape: object) -> tuple[int, ...]:
    if not isinstance(shape, list) or any(type(size) is not int or size < 0 for size in shape):
        raise ValueError(f"a tensor's shape is a list of sizes, got {shape!r:.80}")
    return tuple(shape)


def shape_of_named(parameters: Iterable[tuple[Sequence[str], tuple[int, ...]]]) -> ModelShape:
    """The shape of the model of which only names and sizes are known: a name says what is an embedding, as published
    models call them. What has no elements is no part of it.

    Args:
        parameters: each once, with all names that it has: several where modules share it.

    Raises:
        ValueError: there are none.
    """
    counts = Counter(
        (kind_of_shared([_kind(name, shape) for name in names]), shape)
        for names, shape in parameters
        if names[0].rpartition(".")[2] not in NOT_TRAINED and 0 not in shape and not _is_mask(shape)
    )
    return ModelShape(tuple(sorted(ParameterShape(kind, shape, count) for (kind, shape), count in counts.items())))


def kind_of_shared(kinds: Sequence[ParameterKind]) -> ParameterKind:
    """The kind of a parameter by those that it has in each of the modules that share it: a table of embeddings that is
    the head of a language model, too, is a table, whichever of them comes first."""
    return "embedding" if "embedding" in kinds else kinds[0]


def _is_mask(shape: tuple[int, ...]) -> bool:
    """True of a causal mask, the buffer `attn.bias` of published GPT-2s: a square for one batch and one head. Kernels
    of one channel are smaller."""
    return len(shape) == 4 and shape[:2] == (1, 1) and shape[2] == shape[3] >= MIN_MASK_SIDE


def is_of_adapter(name: str) -> bool:
    """True if a module or parameter of this name belongs to a low-rank adapter."""
    return any(part.startswith(ADAPTER_WORD) for part in name.split("."))


def _kind(name: str, shape: tuple[int, ...]) -> ParameterKind:
    if len(shape) < 2:
        return "vector"
    if is_of_adapter(name):
        return "adapter"
    if len(shape) > 2:
        return "convolution"
    return "embedding" if any(word in name.lower() for word in EMBEDDING_WORDS) else "linear"
