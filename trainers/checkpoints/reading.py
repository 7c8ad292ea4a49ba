"""One checkpoint on disk: checked, then read as this rank's state."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from trainers.checkpoints import manifest as manifests
from trainers.checkpoints.communication import Channel
from trainers.checkpoints.errors import CheckpointMismatch, Damaged
from trainers.checkpoints.manifest import Manifest
from trainers.checkpoints.nested import LikeParameter, unflatten
from trainers.checkpoints.plan import StoredTensors, file_name, read_metadata, read_tensors
from trainers.checkpoints.tensor_file import checksum_of
from trainers.checkpoints.trial_files import MANIFEST, CheckpointFiles
from trainers.config import TrialConfig
from trainers.storage import StoreFailed

T = TypeVar("T")


def together(channel: Channel, function: Callable[[], T]) -> T:
    """The function's value on this rank, if it succeeds on all ranks; else all raise the same.

    Raises:
        CheckpointMismatch, Damaged, StoreFailed: a rank did, with its message; any other sign of nonsense on disk is
            damage.
    """
    result, damage, mismatch, outage = None, None, None, None
    try:
        result = function()
    except Damaged as caught:
        damage = str(caught)
    except CheckpointMismatch as caught:
        mismatch = str(caught)
    except StoreFailed as caught:
        outage = str(caught)
    except torch.OutOfMemoryError:
        raise  # says nothing about the checkpoint; the others notice when this rank is gone
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError) as caught:
        damage = f"{type(caught).__name__}: {caught}"
    outcomes = channel.run(lambda: channel.gather((damage, mismatch, outage)))
    for _, reason, _ in outcomes:
        if reason is not None:
            raise CheckpointMismatch(reason)
    for _, _, reason in outcomes:
        if reason is not None:
            raise StoreFailed(reason)
    damages = dict.fromkeys(reason for reason, _, _ in outcomes if reason is not None)
    if damages:
        raise Damaged("; ".join(damages))
    assert result is not None
    return result


def verify(checkpoint: CheckpointFiles, *, where: str, config: TrialConfig, rank: int, world_size: int) -> Manifest:
    """The manifest of a checkpoint, after this rank's share of the files has been compared with it.

    `where` names the checkpoint in errors.

    Raises:
        CheckpointMismatch: it is of another version of the format, or of a trial with another config.
        Damaged: a file is missing or is not what was written.
        StoreFailed: a file could not be had.
    """
    try:
        content = checkpoint.read_manifest()
    except FileNotFoundError:
        raise Damaged(f"{MANIFEST} is missing") from None
    manifest = manifests.decode(content, where=where)
    manifests.require_same_config(where, written=manifest.config, config=config)
    names = [file_name(writer) for writer in range(manifest.world_size)]
    if list(manifest.files) != names:
        raise Damaged(f"{MANIFEST} lists {list(manifest.files)}, expected {names}")
    for name in names[rank::world_size]:
        try:
            with checkpoint.open(name) as file:
                checksum = checksum_of(file)
        except FileNotFoundError:
            raise Damaged(f"{name} is missing") from None
        if checksum != manifest.files[name]:
            raise Damaged(f"{name} does not have the checksum in {MANIFEST}")
    return manifest


def read(
    checkpoint: CheckpointFiles,
    manifest: Manifest,
    *,
    where: str,
    template: Mapping[str, Any],
    unwanted: Collection[str],
    rank: int,
    world_size: int,
) -> dict[str, Any]:
    """The saved state, laid out as the template says; entries of dicts whose names are unwanted are left out.

    Raises:
        CheckpointMismatch: a tensor in the template has another shape or dtype.
        Damaged, OSError: the files are not what the manifest says.
        StoreFailed: a file could not be had.
    """
    stored = read_metadata(manifest.tensors)
    targets: dict[str, Tensor] = {}

    def target(name: str, like: object) -> Tensor:
        targets[name] = _target(name, like, stored, where)
        return targets[name]

    content = unflatten(
        manifest.structure,
        template=template,
        rank=rank if manifest.world_size == world_size else None,
        is_wanted=lambda name: name not in unwanted,
        tensor=target,
    )
    if not isinstance(content, dict) or set(content) != {"state", "progress", "random_state"}:
        raise Damaged(f"{MANIFEST} describes no state of a trial")
    read_tensors(checkpoint.open, stored, targets)
    return content


def _target(name: str, like: object, stored: StoredTensors, where: str) -> Tensor:
    """Memory for a stored tensor, laid out as what the template has in its place."""
    from torch.distributed.tensor import DTensor

    metadata: Any = stored.metadata.state_dict_metadata[name]
    size, dtype = metadata.size, metadata.properties.dtype
    if isinstance(like, LikeParameter):
        like = like.parameter if like.parameter.shape == size else None
    elif isinstance(like, Tensor) and (like.shape != size or like.dtype != dtype):
        there, here = f"{dtype} {tuple(size)}", f"{like.dtype} {tuple(like.shape)}"
        raise CheckpointMismatch(f"{where}: {name} is {there} there, {here} here")
    empty_like = partial(torch.empty_like, dtype=dtype, requires_grad=False)
    if isinstance(like, DTensor):
        return DTensor.from_local(
            empty_like(like.to_local()),
            like.device_mesh,
            like.placements,
            run_check=False,
            shape=like.shape,
            stride=like.stride(),
        )
    if isinstance(like, Tensor):
        return empty_like(like, device="cpu")
    return torch.empty(size, dtype=dtype)
