"""The weights of a trained model as a safetensors file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from shampoo.distributed.layout import is_dtensor
from trainers.installation.extras import optional_library

EXTRA = "weights"


def whole_weights(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers that a checkpoint of the model has, whole, on the CPU, by their names in the model as its
    workload builds it.

    Collective where parameters are shards: all ranks call it. Tied ones stand under each of their names.
    """
    return {_plain_name(name): _whole(value) for name, value in model.state_dict().items() if isinstance(value, Tensor)}


@torch.no_grad()
def _whole(value: Tensor) -> Tensor:
    full = value.full_tensor() if is_dtensor(value) else value
    return full.detach().to("cpu", copy=True).contiguous()


def _plain_name(name: str) -> str:
    """The name without what SimpleFSDP's parametrizations put into it."""
    return name.replace("parametrizations.", "").removesuffix(".original")


def write_weights(path: Path, weights: Mapping[str, Tensor], *, metadata: Mapping[str, str]) -> None:
    """Writes a safetensors file; a file that is there is replaced as a whole.

    Raises:
        ValueError: safetensors is not installed (the message has the command).
        OSError: it cannot be written.
    """
    library = optional_library("safetensors.torch", extra=EXTRA, purpose="a file of weights")
    part = path.with_name(f"{path.name}.part")
    library.save_file(dict(weights), part, metadata=dict(metadata))
    part.replace(path)
