"""A trial that begins from another one's checkpoint, with hyperparameters of its own."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from typing import Any

from trainers.checkpoints import manifest as manifests
from trainers.checkpoints.backends import trial_files
from trainers.checkpoints.errors import CheckpointMismatch, CheckpointMissing, Damaged
from trainers.checkpoints.manifest import Manifest
from trainers.checkpoints.trial_files import CheckpointFiles, TrialFiles
from trainers.config import TrialConfig
from trainers.storage import Place

IN_FLIGHT = frozenset({"schedule", "gradient_clip_norm"}) | manifests.MAY_DIFFER
"""Fields of a config in which a fork may differ from its parent, beside the optimizer's arguments: they are read anew
in every step. Which arguments leave the optimizer's state as it is, the optimizer says when it is loaded."""


def fork_checkpoint(source: Place, target: Place, *, step: int, config: TrialConfig) -> None:
    """Makes the trial of `config` at the place `target` begin where the trial at `source` was at `step`.

    One process calls it, while no trial writes to `target`; other checkpoints there are removed. The checkpoint appears
    whole or not at all, and is as safe as any other when this returns: the parent may go on and end. Between two
    directories of one disk, the files of tensors are linked.

    Raises:
        CheckpointMissing: the parent has none of that step, or it is damaged.
        CheckpointMismatch: the config differs from the parent's in more than may change between two steps.
        OSError, StoreFailed: a disk or a store refused; nothing is left of the copy.
    """
    original = trial_files(source)
    try:
        with original.reading(original.name_of(step)) as files:
            manifest = manifests.decode(files.read_manifest(), where=f"step {step} in {source}")
            _require_same_but_in_flight(f"step {step} in {source}", written=manifest.config, config=config)
            _copy(files, manifest, trial_files(target), step=step, config=config)
    except (FileNotFoundError, Damaged) as error:
        raise CheckpointMissing(f"there is no whole checkpoint of step {step} in {source}: {error}") from error


def _copy(files: CheckpointFiles, manifest: Manifest, copy: TrialFiles, *, step: int, config: TrialConfig) -> None:
    content = manifests.encode(
        measurement=manifest.measurement,
        world_size=manifest.world_size,
        config=config,
        structure=manifest.structure,
        files=manifest.files,
        tensors_json=json.dumps(manifest.tensors, separators=(",", ":")),
    )
    token, others = secrets.randbits(62), copy.newest_first()
    copy.start(step, token)
    try:
        for name in manifest.files:
            copy.adopt(step, token, name, files)
        copy.finish(step, token, content, others=manifest.files, num_kept=1, damaged=others)
    except BaseException:
        copy.discard(step, token)
        raise


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
            f"{where} cannot be continued by this trial, whose config differs in what may not change in training: "
            f"{'; '.join(different)}"
        )
