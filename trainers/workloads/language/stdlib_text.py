"""Text that every Python has: the source files of its own standard library. Real data, no download.

What is read depends on the Python version, and a little on who built it, so losses are comparable between trials of
one installation only; `StdlibText.sha256` tells whether two are one.
"""

from __future__ import annotations

import hashlib
import platform
import sys
import sysconfig
import zlib
from dataclasses import dataclass
from functools import cache
from logging import getLogger
from pathlib import Path

import torch
from torch import Tensor

logger = getLogger(__name__)

END_OF_FILE = b"\0"
"""Follows each file's text; no Python source contains it."""

VALIDATION_PERIOD = 10
"""One file in so many is held out."""


@dataclass(frozen=True, slots=True)
class StdlibText:
    """Bytes of the library's source, cut in two by file."""

    train_text: Tensor
    """(n,) uint8: the files one after the other, sorted by name, an `END_OF_FILE` after each."""
    train_files: tuple[str, ...]
    validation_text: Tensor
    """(m,) uint8."""
    validation_files: tuple[str, ...]
    sha256: str
    """Digest of both texts, training first; in hexadecimal."""


@cache
def stdlib_text() -> StdlibText:
    """The text of this Python's library, read once per process: about 4 MB to train on and 0.5 MB held out.

    Raises:
        FileNotFoundError: this Python comes without the source of its library.
    """
    text = read_text(Path(sysconfig.get_paths()["stdlib"]))
    logger.debug(
        "read %d files (%d bytes) of Python %s's library, SHA-256 %s",
        len(text.train_files) + len(text.validation_files),
        len(text.train_text) + len(text.validation_text),
        platform.python_version(),
        text.sha256,
    )
    return text


def read_text(directory: Path) -> StdlibText:
    """The text of the library that lies in `directory`.

    Taken are the modules that are one file (`argparse.py`, not `asyncio/`) and that the language lists as its library,
    so neither tests nor installed packages, nor what distributors and the build put beside them.

    Raises:
        FileNotFoundError: the directory lacks them, in whole or so far that nothing is left for validation.
    """
    # Sorted, because the order of a directory is the file system's.
    paths = sorted(path for path in directory.glob("*.py") if path.stem in sys.stdlib_module_names)
    held_out = [path for path in paths if is_held_out(path.name)]
    rest = [path for path in paths if not is_held_out(path.name)]
    if not held_out or not rest:
        raise FileNotFoundError(
            f"{directory} has {len(paths)} source files of Python's standard library, too few to train on; "
            "some slim distributions of Python leave them out"
        )
    train, validation = (b"".join(path.read_bytes() + END_OF_FILE for path in part) for part in (rest, held_out))
    return StdlibText(
        # Copied, because tensors cannot share memory that must not be written.
        train_text=torch.frombuffer(bytearray(train), dtype=torch.uint8),
        train_files=tuple(path.name for path in rest),
        validation_text=torch.frombuffer(bytearray(validation), dtype=torch.uint8),
        validation_files=tuple(path.name for path in held_out),
        sha256=hashlib.sha256(train + validation).hexdigest(),
    )


def is_held_out(file_name: str) -> bool:
    """True if a file is for validation: by its name alone, so that it is on the same side in every Python version."""
    return zlib.crc32(file_name.encode()) % VALIDATION_PERIOD == 0
