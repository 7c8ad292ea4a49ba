"""A trial that begins from another one's checkpoint, with hyperparameters of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from trainers.checkpoints import manifest as manifests
from trainers.checkpoints.copying import copy_checkpoint
from trainers.checkpoints.errors import CheckpointMismatch, CheckpointMissing, Damaged
from trainers.checkpoints.manifest import Manifest
from trainers.config import TrialConfig
from trainers.places import Place

IN_FLIGHT = frozenset({"schedule", "gradient_clip_norm"}) | manifests.MAY_DIFFER
"""Fields of a config in which a fork may differ from its parent, beside the optimizer's arguments: they are read anew
in every step. Which arguments leave the optimizer's state as it is, the optimizer says when it is loaded."""


def fork_checkpoint(source: Place, target: Place, *, step: int, config: TrialConfig) -> None:
    """Has the trial of `config` at the place `target` begin where the trial at `source` was at `step`.

    Other checkpoints at `target` are removed. The parent may go on and end. The checkpoint appears whole or not at all.

    Raises:
        CheckpointMissing: the parent has none of that step, or it is damaged.
        CheckpointMismatch: the config differs from the parent's in more than may change between two steps.
        OSError, StoreFailed: a disk or a store refused.
    """

    def with_own_config(manifest: Manifest) -> bytes:
        _require_same_but_in_flight(f"step {step} in {source}", written=manifest.config, config=config)
        return manifests.encode(
            measurement=manifest.measurement,
            world_size=manifest.world_size,
            config=config,
            structure=manifest.structure,
            files=manifest.files,
            tensors_json=json.dumps(manifest.tensors, separators=(",", ":")),
        )

    try:
        copy_checkpoint(source, step, target, rewrite=with_own_config, keep_others=False)
    except (FileNotFoundError, Damaged) as error:
        raise CheckpointMissing(f"there is no whole checkpoint of step {step} in {source}: {error}") from error


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
