"""The weights of a trained model as a safetensors file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from shampoo.distributed.layout import is_dtensor
from trainers.checkpoints.tensor_file import lay_out, memory_of, write_file
from trainers.installation.extras import optional_library
from trainers.storage import WEIGHTS_FILE, Place

EXTRA = "weights"


@torch.no_grad()
def whole_weights(model: nn.Module, *, keeps: bool = True) -> dict[str, Tensor]:
    """Parameters and buffers that a checkpoint of the model has, whole, on the CPU, by their names in the model as its
    workload builds it.

    Collective where parameters are shards: all ranks call it. Tied ones stand under each of their names.

    Args:
        keeps: False: this rank only takes part, and gets none.
    """
    found = {}
    for name, value in model.state_dict().items():
        if isinstance(value, Tensor):
            full = value.full_tensor() if is_dtensor(value) else value
            if keeps:
                found[name] = full.detach().to("cpu", copy=True).contiguous()
    return found


def check_weights_file(path: Path) -> None:
    """Checks, before the training whose weights it is for, that a file can be written; leaves nothing behind.

    Raises:
        ValueError: safetensors is not installed (the message has the command).
        OSError: it cannot be written.
    """
    _safetensors("safetensors.torch")
    if path.exists() and not path.is_file():
        raise OSError(f"{str(path)!r} is no regular file")
    part = _part_of(path)
    part.touch()
    part.unlink()


def write_weights(path: Path, weights: Mapping[str, Tensor], *, metadata: Mapping[str, str]) -> None:
    """Writes a safetensors file; a file that is there is replaced as a whole.

    Raises:
        ValueError: safetensors is not installed (the message has the command).
        OSError: it cannot be written; nothing of it is left behind.
    """
    save_file, failure = _safetensors("safetensors.torch").save_file, _safetensors("safetensors").SafetensorError
    part = _part_of(path)
    try:
        save_file(dict(weights), part, metadata=dict(metadata))
        part.replace(path)
    except failure as error:
        raise OSError(str(error)) from error
    finally:
        with suppress(OSError):
            part.unlink()


def _safetensors(module: str) -> Any:
    return optional_library(module, extra=EXTRA, purpose="a file of weights")


def _part_of(path: Path) -> Path:
    """The file that becomes `path` when it is whole."""
    return path.with_name(f"{path.name}.part")


def put_weights(directory: Place, weights: Mapping[str, Tensor], *, metadata: Mapping[str, str]) -> None:
    """Writes `model.safetensors` to a directory on a path or in a store, without a library of the format; one that is
    there is replaced as a whole.

    Args:
        weights: whole and contiguous, on the CPU, as `whole_weights` gives them.

    Raises:
        ValueError: a dtype has no place in the format.
        OSError: the disk refused.
        StoreFailed: the store refused.
    """
    layout = lay_out([(name, value.dtype, tuple(value.shape)) for name, value in weights.items()], metadata=metadata)
    in_order = sorted(zip(layout.slots, weights.values(), strict=True), key=lambda placed: placed[0].start)

    def content() -> Iterator[bytes | memoryview]:
        yield layout.header
        for slot, value in in_order:
            if slot.num_bytes:
                yield memory_of(value.reshape(-1).view(torch.uint8))

    if isinstance(directory, Path):
        directory.mkdir(parents=True, exist_ok=True)
        part = directory / f"{WEIGHTS_FILE}.part"
        write_file(part, content)
        part.replace(directory / WEIGHTS_FILE)
        return
    from trainers.storage.object_store import ObjectStore  # imports pyarrow

    ObjectStore(directory).write(WEIGHTS_FILE, content)
