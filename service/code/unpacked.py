"""Code laid out for the processes of a job."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from service.code.archive import unpack
from trainers.processes.job_code import JobCode, children_have


@contextmanager
def laid_out(archive: bytes | None, environment: Mapping[str, str]) -> Iterator[None]:
    """While it is open, processes that are started in this context have the code of a stored archive, in a directory of
    their own; None: there is none.

    Raises:
        UnusableCode: the archive is none.
    """
    if archive is None:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="tuner-code-") as parent:
        directory = Path(parent) / "code"
        unpack(archive, directory)
        with children_have(JobCode(directory, environment)):
            yield
