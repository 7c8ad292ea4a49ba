"""A checkpoint of one trial as the beginning of another."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from functools import partial

from trainers.checkpoints import manifest as manifests
from trainers.checkpoints.trial_files import CheckpointFiles, trial_files
from trainers.places import Place

_CHUNK_BYTES = 1 << 24


def copy_checkpoint(source: Place, step: int, destination: Place) -> None:
    """Copies the checkpoint of `step` from one trial's place to another's, where it is complete or not there.

    One process calls it, while no trial writes to the destination; a checkpoint of that step there is replaced. It is
    as safe as any checkpoint there when this returns. It still holds the source's config.

    Raises:
        FileNotFoundError: the source has no such checkpoint, or has it no longer.
        CheckpointMismatch, Damaged: its manifest is of another version of the format, or not what was written.
        OSError, StoreFailed: a disk or a store refused; nothing is left of the copy.
    """
    original, copy = trial_files(source), trial_files(destination)
    token = secrets.randbits(62)
    with original.reading(original.name_of(step)) as files:
        manifest = files.read_manifest()
        names = manifests.decode(manifest, where=f"the checkpoint of step {step} in {source}").files
        copy.start(step, token)
        try:
            for name in names:
                copy.write(step, token, name, partial(_chunks, files, name))
            copy.finish(step, token, manifest, others=names, num_kept=None, damaged=())
        except BaseException:
            copy.discard(step, token)
            raise


def _chunks(files: CheckpointFiles, name: str) -> Iterator[bytes]:
    with files.open(name) as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk
