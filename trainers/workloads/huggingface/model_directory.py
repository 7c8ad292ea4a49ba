"""A model in a local directory, as `transformers` saves one: its config, and what must not be in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_NAMES_CODE = ("auto_map", "custom_generate", "custom_pipelines")
_IMPLEMENTATIONS = ("attn_implementation", "experts_implementation")
"""Fields whose value may be a repository of compiled kernels, `owner/name`."""


def model_directory(model_path: object, *, needs_weights: bool) -> Path:
    """The directory, which has what is to be read.

    Raises:
        ValueError: it is no local directory, or lacks files, or has weights in other files than safetensors.
    """
    if not isinstance(model_path, str) or not Path(model_path).expanduser().is_dir():
        raise ValueError(f"model_path must be a local directory, got {model_path!r}; nothing is fetched from the hub")
    directory = Path(model_path).expanduser()
    if not (directory / "config.json").is_file():
        raise ValueError(f"model_path {directory} has no config.json")
    if (directory / "adapter_config.json").exists():
        raise ValueError(f"model_path {directory} holds an adapter of another model; merge them first")
    if needs_weights:
        _check_weight_files(directory)
    return directory


def _check_weight_files(directory: Path) -> None:
    """Refuses a directory whose weights are not, all of them, in safetensors files of its own."""
    if (directory / "model.safetensors").is_file():
        return
    index = directory / "model.safetensors.index.json"
    if not index.is_file():
        raise ValueError(f"model_path {directory} has no model.safetensors; weights in other formats are not read")
    files = _read_object(index).get("weight_map")
    if not isinstance(files, dict) or not files:
        raise ValueError(f"model_path: {index} has no weight_map")
    for file in files.values():
        if not isinstance(file, str) or Path(file).name != file or not file.endswith(".safetensors"):
            raise ValueError(f"model_path: {index} names {file!r}; only safetensors files beside it are read")


def read_config(directory: Path) -> dict[str, Any]:
    """The fields of `config.json`.

    Raises:
        ValueError: it is no JSON object, or names code, kernels or quantized weights.
    """
    file = directory / "config.json"
    fields = _read_object(file)
    _refuse_code(fields, file)
    return fields


def _read_object(file: Path) -> dict[str, Any]:
    try:
        fields = json.loads(file.read_bytes())
    except ValueError as error:
        raise ValueError(f"model_path: {file} is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise ValueError(f"model_path: {file} must hold an object, got {fields!r}")
    return fields


def _refuse_code(value: object, file: Path) -> None:
    if isinstance(value, list):
        for part in value:
            _refuse_code(part, file)
    if not isinstance(value, dict):
        return
    for name, part in value.items():
        if name in _NAMES_CODE:
            raise ValueError(f"model_path: {file} names code that comes with the model ({name}: {part!r}); refused")
        if name == "quantization_config" and part is not None:
            raise ValueError(f"model_path: {file} is of quantized weights ({name}: {part!r}); they are not trained")
        if name.lstrip("_").startswith(_IMPLEMENTATIONS) and "/" in str(part):
            raise ValueError(f"model_path: {file} names kernels that would be fetched ({name}: {part!r}); refused")
        _refuse_code(part, file)
