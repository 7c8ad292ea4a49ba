"""Errors of Parquet files: those of pyarrow on a damaged file name no file, and are of several classes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainers.installation.extras import optional_library


@contextmanager
def whole_parquet(path: str | Path, *, extra: str, purpose: str) -> Iterator[None]:
    """A block that reads a Parquet file, which may be damaged anywhere: data are looked at as they are read.

    Args:
        extra: the one that installs pyarrow.
        purpose: what needs it, to begin a sentence with.

    Raises:
        ValueError: pyarrow cannot make sense of the file, whose name the message has, or is not installed.
        OSError: the system does not let it be read, which says nothing of what is in it.
    """
    arrow = optional_library("pyarrow", extra=extra, purpose=purpose)
    try:
        yield
    except (arrow.ArrowException, OSError) as error:
        if not is_damage(error):
            raise
        raise ValueError(f"{path} is not a whole Parquet file: {error}") from error


def is_damage(error: Exception) -> bool:
    """True if an error of pyarrow's, or an OSError, is about what is in the file, not about memory or the system."""
    # pyarrow has plain OSErrors for damaged data, without the number that the system's have.
    return not isinstance(error, MemoryError) and (not isinstance(error, OSError) or error.errno is None)
