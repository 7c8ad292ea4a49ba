"""`manifest.json`: everything of a checkpoint but the tensors' bytes, itself under a checksum.

The file is `{"manifest": {...}, "sha256": "..."}`; the checksum is that of the manifest's bytes as they stand there.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, fields
from typing import Any

from trainers.checkpoints.errors import CheckpointMismatch, Damaged
from trainers.config import Measurement, TrialConfig

FORMAT = 3
"""Raised when the files of a checkpoint change their meaning: a checkpoint of another version is refused."""

MAY_DIFFER = frozenset({"checkpoint_every", "keep_checkpoints", "accumulation_steps"})
"""Fields of a config that a trial may go on with a different value of: neither its state nor its batches are others."""

_HEAD = b'{"manifest": '
_TAIL = b', "sha256": "%b"}\n'
_TAIL_BYTES = len(_TAIL) - 2 + 64


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of `manifest.json`."""

    step: int
    world_size: int
    config: dict[str, Any]
    measurement: Measurement
    structure: Any
    """The nesting of state, progress and random generators (`nested`)."""
    files: dict[str, str]
    """SHA-256 by file name."""
    tensors: dict[str, Any]
    """The place of each tensor (`plan.read_metadata`)."""


def encode(
    *,
    measurement: Measurement,
    world_size: int,
    config: TrialConfig,
    structure: Any,
    files: dict[str, str],
    tensors_json: str,
) -> bytes:
    """The file's content; `tensors_json` is put in as it is, because it is long and rarely changes."""
    content = {
        "format": FORMAT,
        "step": measurement.step,
        "world_size": world_size,
        "config": config.to_json(),
        "measurement": {**_fields(measurement), "metrics": dict(measurement.metrics)},
        "structure": structure,
        "files": files,
    }
    manifest = f'{json.dumps(content, separators=(",", ":"))[:-1]},"tensors":{tensors_json}}}'.encode()
    return _HEAD + manifest + _TAIL % hashlib.sha256(manifest).hexdigest().encode()


def decode(content: bytes, *, where: str) -> Manifest:
    """The manifest in a file's content; `where` is named in errors.

    Raises:
        CheckpointMismatch: it is of another version of this format.
        Damaged: it is not what was written.
    """
    manifest = content[len(_HEAD) : -_TAIL_BYTES]
    if content != _HEAD + manifest + _TAIL % hashlib.sha256(manifest).hexdigest().encode():
        _require_format(_json_or_none(content), where)
        raise Damaged("manifest.json does not have its own checksum")
    decoded = json.loads(manifest)
    _require_format(decoded, where)
    del decoded["format"]
    return Manifest(**{**decoded, "measurement": _measurement(decoded["measurement"])})


def _measurement(written: dict[str, Any]) -> Measurement:
    return Measurement(**{**written, "remarks": tuple(written.get("remarks", ()))})


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _json_or_none(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return None


def _require_format(decoded: Any, where: str) -> None:
    if isinstance(decoded, dict) and isinstance(decoded.get("format"), int) and decoded["format"] != FORMAT:
        raise CheckpointMismatch(f"{where} has format {decoded['format']}, this version reads format {FORMAT}")


def require_same_config(where: str, *, written: dict[str, Any], config: TrialConfig) -> None:
    """Checks that a checkpoint was written by a trial with this config, but for `MAY_DIFFER`.

    Raises:
        CheckpointMismatch: naming the fields that differ.
    """
    ours = json.loads(json.dumps(config.to_json()))
    different = [
        f"{name} {written.get(name)!r} there, {ours.get(name)!r} here"
        for name in sorted(written.keys() | ours.keys())
        if written.get(name) != ours.get(name) and name not in MAY_DIFFER
    ]
    if different:
        raise CheckpointMismatch(f"{where} belongs to a trial with another config: {'; '.join(different)}")
