"""The shape of a model: its parameters by kind and size, as a built model or a file of weights tells it."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from trainers.identity.kinds import (
    frozen_of,
    is_of_adapter,
    kind_of_shared,
    may_be_tied,
    outputs_first,
    parameter_of_name,
    shape_of_named,
    shape_of_parameters,
)
from trainers.identity.values import ModelShape, ParameterShape, ReadShape
from trainers.torch_internals import storage_address

NO_PARAMETERS = (torch.bool, torch.int64)
"""Types of numbers that only buffers have, such as masks and positions."""
TABLES = (nn.Embedding, nn.EmbeddingBag)
LAYERS = (
    *(nn.Linear, nn.Bilinear),
    *(nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
)
"""Classes whose weights are what their number of dimensions says, whatever their names."""


def model_shape(model: nn.Module) -> ModelShape:
    """The shape of a model, on whatever device: that of its trained parameters. One that modules share counts once, an
    empty one not at all.

    Args:
        model: as the workload builds it, before it is sharded, compiled or wrapped.

    Raises:
        ValueError: it has no parameter that is trained.
    """
    return read_model(model).shape


def has_trained(model: nn.Module) -> bool:
    """True if the model has a shape."""
    return any(parameter.requires_grad for parameter in model.parameters())


def read_model(model: nn.Module, *, frozen: Sequence[str] = ()) -> ReadShape:
    """The shape of a model, and how much of it is frozen.

    Args:
        frozen: patterns of the names (`backbone.*`) of parameters that are not trained, beside those that require no
            gradient.

    Raises:
        ValueError: it has no parameter that is trained, or a pattern is of none.
    """
    found: dict[Tensor, list[ParameterShape]] = {}
    names: dict[Tensor, list[str]] = {}
    for name, module in model.named_modules():
        for own_name, parameter in module.named_parameters(recurse=False):
            if 0 not in parameter.shape:
                whole = f"{name}.{own_name}" if name else own_name
                found.setdefault(parameter, []).append(_parameter(whole, module, parameter))
                names.setdefault(parameter, []).append(whole)
    is_left_out = frozen_of(list(names.values()), frozen)
    trained = [
        parameter
        for parameter, is_frozen in zip(found, is_left_out, strict=True)
        if parameter.requires_grad and not is_frozen
    ]
    num_frozen = sum(map(Tensor.numel, found)) - sum(map(Tensor.numel, trained))
    shape = shape_of_parameters((kind_of_shared(found[one]) for one in trained), num_frozen=num_frozen)
    return ReadShape(shape, num_frozen)


def shape_of_state_dict(path: Path, *, frozen: Sequence[str] = ()) -> ReadShape:
    """The shape of the model whose state dict `torch.save` wrote. No code of the file runs, and no weights are read.
    What names share counts once, except in files as torch before 1.6 wrote them.

    Where a dict holds dicts, as a checkpoint with an optimizer's state does, the one with most tensors counts.

    Args:
        frozen: patterns of the names of parameters that are not trained, which a file does not say.

    Raises:
        ValueError: it is no such file, holds no tensors by name, or `frozen` leaves nothing or is of nothing.
    """
    try:
        # Mapped, tensors keep the storage that they share, which on the meta device they do not.
        is_mappable = zipfile.is_zipfile(path)
        device = "cpu" if is_mappable else "meta"
        content = torch.load(path, map_location=device, weights_only=True, mmap=is_mappable)
    except pickle.UnpicklingError as error:  # of which torch's own words advise to let the file's code run
        raise ValueError(
            f"{path} is no state dict: it holds objects that only code of the file could make, as a whole model does, "
            "or is another kind of file; save model.state_dict(), or name the class as module:Class"
        ) from error
    except Exception as error:  # torch raises what the format gives rise to: RuntimeError, EOFError...
        raise ValueError(f"{path} is no state dict that torch.load reads with weights_only=True: {error}") from error
    named = max(_dicts_of_tensors(content), key=len, default={})
    if not named:
        raise ValueError(f"{path} holds no tensors by name")
    shared: dict[object, list[str]] = {}
    for name, tensor in named.items():
        if tensor.dtype in NO_PARAMETERS:
            continue
        is_mapped = tensor.device.type == "cpu" and tensor.layout is torch.strided
        place = (storage_address(tensor), tensor.storage_offset(), tensor.shape, tensor.stride()) if is_mapped else name
        shared.setdefault(place, []).append(name)
    firsts = {names[0]: (tuple(named[names[0]].shape), named[names[0]].dtype) for names in shared.values()}
    tied = [pair for pair in may_be_tied(firsts) if _are_equal(*(named[name] for name in pair))]
    return shape_of_named(
        ((names, tuple(named[names[0]].shape)) for names in shared.values()), frozen=frozen, tied=tied
    )


def _are_equal(one: Tensor, other: Tensor) -> bool:
    """True if two tensors have the same numbers; not of constants, as zeros, which are equal without being one."""
    return one.device.type == "cpu" and torch.equal(one, other) and not bool((one == one.flatten()[0]).all())


def _dicts_of_tensors(content: Any, *, levels: int = 3) -> Iterable[Mapping[str, Tensor]]:
    if not isinstance(content, Mapping):
        return
    tensors = {key: value for key, value in content.items() if isinstance(key, str) and isinstance(value, Tensor)}
    if tensors:
        yield tensors
    if levels > 0:
        for value in content.values():
            yield from _dicts_of_tensors(value, levels=levels - 1)


def _parameter(name: str, module: nn.Module, parameter: Tensor) -> ParameterShape:
    """A parameter as the class of its module tells it, or else its name, as in a file."""
    shape = tuple(parameter.shape)
    if len(shape) >= 2 and not is_of_adapter(name):
        if isinstance(module, TABLES):
            return ParameterShape("embedding", shape, 1)
        if isinstance(module, LAYERS):
            return ParameterShape("convolution" if len(shape) > 2 else "linear", shape, 1)
    bias = getattr(module, "bias", None) if parameter is getattr(module, "weight", None) else None
    return outputs_first(parameter_of_name(name, shape), tuple(bias.shape) if isinstance(bias, Tensor) else None)
