"""A checkpoint of one trial as the beginning of another."""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path

from trainers.checkpoints import directory as files


def copy_checkpoint(source: Path, step: int, destination: Path) -> None:
    """Copies the checkpoint of `step` from one trial's directory to another's, where it is complete or not there.

    One process calls it, while no trial writes to the destination; a checkpoint of that step there is replaced. The
    copy is flushed to disk. It still holds the source's config.

    Raises:
        FileNotFoundError: the source has no such checkpoint, or has it no longer.
        OSError: the disk refused; nothing is left of the copy.
    """
    original = files.complete_path(source, step=step)
    partial = files.partial_path(destination, step=step, token=secrets.randbits(62))
    manifest = (original / files.MANIFEST).read_bytes()
    files.start(destination, partial)
    try:
        for file in sorted(original.iterdir()):
            if file.name != files.MANIFEST:
                shutil.copyfile(file, partial / file.name)
                _flush(partial / file.name)
        files.finish(destination, partial, manifest, step=step, num_kept=None, damaged=())
    except OSError:
        files.discard(partial)
        raise


def _flush(file: Path) -> None:
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
