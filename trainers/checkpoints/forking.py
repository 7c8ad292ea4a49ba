"""A trial that begins from another one's checkpoint, with hyperparameters of its own."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from trainers.checkpoints import directory as files
from trainers.checkpoints import manifest as manifests
from trainers.checkpoints.errors import CheckpointMismatch, CheckpointMissing, Damaged
from trainers.config import TrialConfig

IN_FLIGHT = frozenset({"schedule", "gradient_clip_norm"}) | manifests.MAY_DIFFER
"""Fields of a config in which a fork may differ from its parent, beside the optimizer's arguments: they are read anew
in every step. Which arguments leave the optimizer's state as it is, the optimizer says when it is loaded."""


def fork_checkpoint(source: Path, target: Path, *, step: int, config: TrialConfig) -> None:
    """Has the trial of `config` in the directory `target` begin where the trial in `source` was at `step`.

    What is in `target` is removed. The files of tensors, which are never written again, are linked where the disk can
    do that, else copied; so the parent may go on and end. The checkpoint appears whole or not at all.

    Raises:
        CheckpointMissing: the parent has none of that step, or it is damaged.
        CheckpointMismatch: the config differs from the parent's in more than may change between two steps.
        OSError: the disk refused.
    """
    path = files.complete_path(source, step=step)
    try:
        manifest = manifests.decode((path / files.MANIFEST).read_bytes(), where=str(path))
    except (FileNotFoundError, Damaged) as error:
        raise CheckpointMissing(f"there is no checkpoint {path}: {error}") from error
    _require_same_but_in_flight(str(path), written=manifest.config, config=config)
    shutil.rmtree(target, ignore_errors=True)
    partial = files.partial_path(target, step=step, token=secrets.randbits(62))
    files.start(target, partial)
    try:
        for name in manifest.files:
            _link_or_copy(path / name, partial / name)
    except FileNotFoundError as error:
        raise CheckpointMissing(f"the checkpoint {path} lacks a file: {error}") from error
    content = manifests.encode(
        measurement=manifest.measurement,
        world_size=manifest.world_size,
        config=config,
        structure=manifest.structure,
        files=manifest.files,
        tensors_json=json.dumps(manifest.tensors, separators=(",", ":")),
    )
    files.finish(target, partial, content, step=step, num_kept=1, damaged=())


def _link_or_copy(source: Path, target: Path) -> None:
    with suppress(OSError):
        os.link(source, target)
        return
    shutil.copyfile(source, target)


def _require_same_but_in_flight(where: str, *, written: Mapping[str, Any], config: TrialConfig) -> None:
    ours = json.loads(json.dumps(config.to_json()))
    # Another method's state would not fit.
    methods = {"optimizer": ours["optimizer"]["name"]}, {"optimizer": written["optimizer"]["name"]}
    here, there = ({**whole, **method} for whole, method in zip((ours, dict(written)), methods, strict=True))
    different = [
        f"{name} {there.get(name)!r} there, {here.get(name)!r} here"
        for name in sorted(here.keys() | there.keys())
        if here.get(name) != there.get(name) and name not in IN_FLIGHT
    ]
    if different:
        raise CheckpointMismatch(
            f"{where} cannot be gone on with: what differs may not change in training: {'; '.join(different)}"
        )
