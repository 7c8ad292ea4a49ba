"""The digest of a workload's data: of the files that it reads, or else of some examples."""

from __future__ import annotations

import hashlib
import logging
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import torch

from trainers.config import Json
from trainers.data.entries import kind_of
from trainers.identity.values import DIGEST_LENGTH, digest_of
from trainers.workload.batches import tensors_in
from trainers.workload.description import WorkloadDescription
from trainers.workload.protocol import CountsEvents, GivesBatches, Workload

MAX_FILES = 1024
"""Files of which size and content count. Of more, so many spread evenly over their names stand for all."""
MAX_FILE_BYTES = 64 * 2**20
"""Bytes read from the beginning of each file."""
MAX_BYTES = 4 * MAX_FILE_BYTES
"""Bytes read in all: of more than four files, each gives an equal part."""
NUM_EXAMPLES = 16
"""Training examples that stand for data without files, spread evenly."""

logger = logging.getLogger(__name__)


def content_digest(workload: Workload, description: WorkloadDescription, options: Mapping[str, Json]) -> str | None:
    """The digest of the data that a workload reads; None: there is no telling.

    Where options that name files are given, it is taken over the names of all files there, and the sizes and
    beginnings of at most `MAX_FILES`; a directory may move. For another workload that has `batch`: over the number of
    its training examples and the tensors of `NUM_EXAMPLES`. One that reads ahead, or counts what it reads, is not asked
    for examples: it would notice.

    Args:
        options: the trial's, those left out at their defaults.
    """
    try:
        given = {name: options.get(name, option.default) for name, option in description.options.items()}
        paths = tuple(
            (name, value)
            for name, value in sorted(given.items())
            if description.options[name].role in ("path", "path_or_word") and isinstance(value, str)
        )
        if any(Path(value).expanduser().exists() for _, value in paths):
            return _digest_of_paths(paths)
        if isinstance(workload, GivesBatches) and not isinstance(workload, CountsEvents):
            return _digest_of_examples(workload)
    except Exception:  # the boundary to a user's own code
        logger.warning("the data of %s have no digest", description.name, exc_info=True)
    return None


@lru_cache(maxsize=8)
def _digest_of_paths(paths: tuple[tuple[str, str], ...]) -> str:
    """Read once per process: its trials follow each other in seconds.

    Args:
        paths: by option. A value that is no path, as a tokenizer's name, counts as it is.
    """
    digest = hashlib.sha256()
    for option, path in paths:
        root = Path(path).expanduser()
        files = list(_files(root)) if root.exists() else []
        digest.update(digest_of([option, [name for name, _ in files] or path]).encode())
        chosen = _spread(files)
        limit = min(MAX_FILE_BYTES, MAX_BYTES // max(len(chosen), 1))
        for file in chosen:
            with file[1].open("rb") as stream:
                digest.update(digest_of(os.fstat(stream.fileno()).st_size).encode())
                left = limit
                while block := stream.read(min(left, 2**20)):
                    digest.update(block)
                    left -= len(block)
    return digest.hexdigest()[:DIGEST_LENGTH]


def _files(root: Path, above: frozenset[tuple[int, int]] = frozenset()) -> Iterator[tuple[str, Path]]:
    """The file at a path, or those below it in the order of their names, which are relative to it; no hidden ones.

    Args:
        above: devices and inodes of the directories that it lies in: a link back to one of them is passed over.
    """
    status = root.stat()
    if not stat.S_ISDIR(status.st_mode):
        yield root.name, root
        return
    place = (status.st_dev, status.st_ino)
    if place in above:
        return
    with os.scandir(root) as entries:
        found = sorted((entry.name, kind_of(entry)) for entry in entries if not entry.name.startswith("."))
    for name, kind in found:
        if kind == "directory":
            yield from ((f"{name}/{below}", file) for below, file in _files(root / name, above | {place}))
        elif kind == "file":
            yield name, root / name


def _spread(files: Sequence[tuple[str, Path]]) -> Sequence[tuple[str, Path]]:
    if len(files) <= MAX_FILES:
        return files
    return [files[index * len(files) // MAX_FILES] for index in range(MAX_FILES)]


def _digest_of_examples(workload: Workload) -> str:
    assert isinstance(workload, GivesBatches)
    total = workload.num_train_examples
    count = min(NUM_EXAMPLES, total)
    digest = hashlib.sha256(digest_of(total).encode())
    for tensor in tensors_in(workload.batch(torch.arange(count) * total // max(count, 1))):
        digest.update(digest_of([list(tensor.shape), str(tensor.dtype)]).encode())
        digest.update(tensor.detach().contiguous().cpu().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:DIGEST_LENGTH]
