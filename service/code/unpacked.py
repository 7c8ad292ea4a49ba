"""Code laid out for the processes of a job."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from service.code.archive import unpack
from service.code.requirements import NotInstalled, Packages, hold
from service.errors import InvalidInput
from service.specification.code import CodeChoice
from trainers.processes.job_code import JobCode, children_have


@contextmanager
def laid_out(archive: bytes | None, code: CodeChoice | None, *, packages: Path, max_bytes: int) -> Iterator[None]:
    """While it is open, processes that are started in this context have the code of a stored archive, in a directory of
    their own, with its packages and variables; None: there is none.

    Args:
        packages: a directory for what is installed, of all jobs.
        max_bytes: the most that may lie in it.

    Raises:
        UnusableCode: the archive is none.
        InvalidInput: its packages cannot be installed.
    """
    if archive is None or code is None:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="tuner-code-") as parent:
        directory = Path(parent) / "code"
        unpack(archive, directory)
        with (
            closing(packages_of(code, packages, max_bytes=max_bytes)) as own,
            children_have(JobCode(directory, code.environment, own.paths)),
        ):
            yield


def packages_of(code: CodeChoice, parent: Path, *, max_bytes: int) -> Packages:
    """The packages that a job's code requires, installed below `parent`.

    Raises:
        InvalidInput: they cannot be; names the field.
    """
    try:
        return hold(code.requirements, parent, max_bytes=max_bytes)
    except NotInstalled as error:
        raise InvalidInput("code.requirements", f"cannot be installed: {error}") from error
