"""A checkpoint of one trial as one of another."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from trainers.checkpoints import manifest as manifests
from trainers.checkpoints.manifest import Manifest
from trainers.checkpoints.trial_files import trial_files
from trainers.places import Place


def copy_checkpoint(
    source: Place,
    step: int,
    destination: Place,
    *,
    rewrite: Callable[[Manifest], bytes] | None = None,
    keep_others: bool = True,
) -> None:
    """Copies the checkpoint of `step` from one trial's place to another's, where it is complete or not there.

    One process calls it, while no trial writes to the destination; a checkpoint of that step there is replaced. It is
    as safe as any checkpoint there when this returns. Between two directories of one disk, the files of tensors are
    linked.

    Args:
        rewrite: gives the copy's `manifest.json`; None: it is the source's, with its config.
        keep_others: whether the destination's other checkpoints stay.

    Raises:
        FileNotFoundError: the source has no such checkpoint, or has it no longer.
        CheckpointMismatch, Damaged: its manifest is of another version of the format, or not what was written.
        OSError, StoreFailed: a disk or a store refused; nothing is left of the copy.
    """
    original, copy = trial_files(source), trial_files(destination)
    token = secrets.randbits(62)
    name_of_original = original.name_of(step)
    with original.reading(name_of_original) as files:
        content = files.read_manifest()
        manifest = manifests.decode(content, where=str(source / name_of_original))
        if rewrite is not None:
            content = rewrite(manifest)
        others = () if keep_others else copy.newest_first()
        copy.start(step, token)
        try:
            for name in manifest.files:
                copy.adopt(step, token, name, files)
            copy.finish(step, token, content, others=manifest.files, num_kept=None, damaged=others)
        except BaseException:
            copy.discard(step, token)
            raise
