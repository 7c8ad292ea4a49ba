"""Checkpoints of a trial: atomic to write, checked when read, exact to resume from.

A checkpoint is a directory `step-00000040` with `state.pt` (tensors and plain values) and `manifest.json` (step, world
size, the trial's config, and the SHA-256 of the state). It is written under another name, flushed to disk and then
renamed, so a name that reads `step-*` was written completely; the newest two are kept, so that damage to one on disk
costs a few steps and not the trial. Reading executes no code (`weights_only`).
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
import pickle
import re
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from trainers.config import Measurement, TrialConfig
from trainers.distributed import RankContext, gather_over_ranks, sum_over_ranks

logger = logging.getLogger(__name__)

NUM_KEPT = 2

_FORMAT = 1
_STATE_FILE = "state.pt"
_MANIFEST_FILE = "manifest.json"
_COMPLETE = re.compile(r"step-(\d{8})")
_PARTIAL_PREFIX = ".partial-"


class CheckpointMismatch(ValueError):
    """The checkpoints in a directory belong to a trial with another config."""


class CheckpointNotWritten(Exception):
    """A checkpoint could not be written, e.g. because the disk is full; earlier ones are untouched."""


class _Damaged(Exception):
    """A checkpoint on disk cannot be read."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A trial right after a measurement: everything its future depends on."""

    measurement: Measurement
    """The measurement just taken; its step and seconds are those of the trial."""
    model: dict[str, Any]
    optimizer: dict[str, Any]
    schedule: dict[str, Any]
    random_states: list[dict[str, torch.Tensor]]
    """State of the random generators of each rank, by rank; its length is the world size."""


def save(directory: Path, checkpoint: Checkpoint, *, config: TrialConfig, context: RankContext) -> None:
    """Writes a checkpoint, on rank 0; returns on all ranks when it is safely on disk.

    Raises:
        CheckpointNotWritten: on all ranks, if rank 0 could not write; earlier checkpoints are still there.
    """
    error: OSError | None = None
    if context.rank == 0:
        try:
            write(directory, checkpoint, config=config)
        except OSError as caught:
            error = caught
    num_failed = sum_over_ranks([float(error is not None)], context)[0]
    if num_failed > 0:
        reason = str(error) if error is not None else "see rank 0"
        step = checkpoint.measurement.step
        raise CheckpointNotWritten(f"checkpoint of step {step} in {directory}: {reason}") from error


def load(directory: Path, *, config: TrialConfig, context: RankContext) -> Checkpoint | None:
    """The newest checkpoint that can be read, or None; every rank reads it for itself.

    Raises:
        CheckpointMismatch: the directory holds checkpoints of another config.
        RuntimeError: the ranks see different checkpoints, so `directory` is not shared between them.
    """
    checkpoint = read_newest(directory, config=config)
    steps = gather_over_ranks(None if checkpoint is None else checkpoint.measurement.step, context)
    if len(set(steps)) > 1:
        raise RuntimeError(f"the ranks found checkpoints of different steps in {directory}: {steps}; is it shared?")
    return checkpoint


def write(directory: Path, checkpoint: Checkpoint, *, config: TrialConfig) -> None:
    """Writes a checkpoint atomically, then deletes those older than the newest two. Called by one process.

    Raises:
        OSError: the disk refused; what was there before is still there.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for leftover in directory.glob(f"{_PARTIAL_PREFIX}*"):
        shutil.rmtree(leftover)
    buffer = io.BytesIO()
    torch.save(_plain(checkpoint), buffer)
    state = buffer.getbuffer()
    manifest = {
        "format": _FORMAT,
        "step": checkpoint.measurement.step,
        "world_size": len(checkpoint.random_states),
        "config": config.to_json(),
        "sha256": {_STATE_FILE: hashlib.sha256(state).hexdigest()},
    }
    final = directory / f"step-{checkpoint.measurement.step:08d}"
    partial = directory / f"{_PARTIAL_PREFIX}{final.name}-{os.getpid()}"
    partial.mkdir()
    try:
        _write_to_disk(partial / _STATE_FILE, state)
        _write_to_disk(partial / _MANIFEST_FILE, memoryview(json.dumps(manifest, indent=1).encode()))
        _flush_directory(partial)
        replaced = directory / f"{_PARTIAL_PREFIX}replaced-{final.name}-{os.getpid()}"
        if final.exists():  # a damaged one, after a resume from the one before it
            final.rename(replaced)
        partial.rename(final)
        _flush_directory(directory)
    except OSError:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    # Any that are newer could not be read, or this trial would not be here: they do not count among the kept.
    up_to_here = [path for path in _complete_newest_first(directory) if path.name <= final.name]
    for old in up_to_here[NUM_KEPT:]:
        shutil.rmtree(old)
    shutil.rmtree(replaced, ignore_errors=True)


def read_newest(directory: Path, *, config: TrialConfig) -> Checkpoint | None:
    """The newest checkpoint in `directory` that can be read, or None if there is none.

    A damaged one is passed over with a warning in the log.

    Raises:
        CheckpointMismatch: it was written by a trial with another config.
    """
    for path in _complete_newest_first(directory):
        try:
            return _read(path, config=config)
        except _Damaged as damage:
            logger.warning("checkpoint %s is damaged (%s); trying the one before it", path, damage)
    return None


def _read(path: Path, *, config: TrialConfig) -> Checkpoint:
    try:
        manifest = json.loads((path / _MANIFEST_FILE).read_bytes())
        state = (path / _STATE_FILE).read_bytes()
        if manifest["format"] != _FORMAT:
            raise CheckpointMismatch(f"{path} has format {manifest['format']}, this version reads format {_FORMAT}")
        if hashlib.sha256(state).hexdigest() != manifest["sha256"][_STATE_FILE]:
            raise _Damaged(f"{_STATE_FILE} does not have the checksum in {_MANIFEST_FILE}")
        _check_same_config(path, written=manifest["config"], ours=json.loads(json.dumps(config.to_json())))
        content = torch.load(io.BytesIO(state), map_location="cpu", weights_only=True)
        return Checkpoint(**{**content, "measurement": Measurement(**content["measurement"])})
    except (FileNotFoundError, json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise _Damaged(f"{type(error).__name__}: {error}") from error
    except pickle.UnpicklingError as error:
        raise _Damaged(f"{_STATE_FILE} holds more than tensors and plain values: {error}") from error


def _check_same_config(path: Path, *, written: dict[str, Any], ours: dict[str, Any]) -> None:
    different = [
        f"{name} {written.get(name)!r} there, {ours.get(name)!r} here"
        for name in sorted(written.keys() | ours.keys())
        if written.get(name) != ours.get(name)
    ]
    if different:
        raise CheckpointMismatch(f"{path} belongs to a trial with another config: {'; '.join(different)}")


def _complete_newest_first(directory: Path) -> list[Path]:
    if not directory.is_dir():
        return []
    return sorted((path for path in directory.iterdir() if _COMPLETE.fullmatch(path.name)), reverse=True)


def _plain(checkpoint: Checkpoint) -> dict[str, Any]:
    """The fields as plain values; tensors are not copied."""
    return {
        "measurement": {**asdict(checkpoint.measurement), "metrics": dict(checkpoint.measurement.metrics)},
        "model": checkpoint.model,
        "optimizer": checkpoint.optimizer,
        "schedule": checkpoint.schedule,
        "random_states": checkpoint.random_states,
    }


def _write_to_disk(path: Path, content: memoryview) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _flush_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
