"""A job's own code: the directory that its processes import from before any other, and its environment variables.

The directory stands in the environment of each process of a job (`CODE_VARIABLE`), as do those of the packages that it
requires; `import_from_job_code`, called
before any class of a user's is imported, puts it first. So a fork of a warm process finds what a new one does, and no
process has the code of two jobs.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

CODE_VARIABLE = "SHAMPOO_CODE_DIRECTORY"
"""Names the directory, in a job's processes on this machine."""
PACKAGES_VARIABLE = "SHAMPOO_CODE_PACKAGES"
"""Names the directories of the packages that the code requires, in a job's processes anywhere; on other machines they
are started in the directory that it is relative to."""


@dataclass(frozen=True, slots=True)
class JobCode:
    """A job's code, unpacked."""

    directory: Path
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)  # it may hold secrets
    packages: Sequence[Path] = ()
    """Directories to import from after all others."""

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables of the job's processes."""
        packages = os.pathsep.join(map(str, self.packages))
        return {**self.environment, CODE_VARIABLE: str(self.directory), PACKAGES_VARIABLE: packages}

    def enter(self) -> None:
        """Makes this process, and all that it starts from here on, the job's."""
        os.environ.update(self.variables)
        import_from_job_code()


_OF_CHILDREN: ContextVar[JobCode | None] = ContextVar("code of children", default=None)


@contextmanager
def children_have(code: JobCode | None) -> Iterator[None]:
    """While it is open, what `trainers.processes.starting.start` starts in this context is a process of the job; None:
    of no job with code. This process stays as it is."""
    token = _OF_CHILDREN.set(code)
    try:
        yield
    finally:
        _OF_CHILDREN.reset(token)


def variables_of_children() -> dict[str, str]:
    """Environment variables of the processes that are started in this context, beside others."""
    code = _OF_CHILDREN.get()
    return {} if code is None else code.variables


def import_from_job_code() -> None:
    """Makes this process import from the directory of its job's code first, if its job has code.

    A module of that name that was imported from elsewhere is forgotten, so that the job's is imported. What packages it
    requires comes last.
    """
    packages = [str(Path(path).absolute()) for path in os.environ.get(PACKAGES_VARIABLE, "").split(os.pathsep) if path]
    sys.path += [path for path in packages if path not in sys.path]
    directory = os.environ.get(CODE_VARIABLE)
    if not directory or directory in sys.path[:1]:
        return
    sys.path[:] = [directory, *(path for path in sys.path if path != directory)]
    importlib.invalidate_caches()
    own = _modules_below(Path(directory))
    for name in [name for name in sys.modules if name.partition(".")[0] in own]:
        file = getattr(sys.modules[name], "__file__", None)
        if name != "__main__" and (file is None or not Path(file).is_relative_to(directory)):
            del sys.modules[name]


def modules_of_job_code() -> list[str] | None:
    """The modules and packages that stand in the directory of the job's code; None: this process is of no job with
    code, or finds it where it was started."""
    directory = os.environ.get(CODE_VARIABLE)
    return sorted(_modules_below(Path(directory))) if directory else None


def _modules_below(directory: Path) -> set[str]:
    files = [*directory.glob("*.py"), *(path.parent for path in directory.glob("*/__init__.py"))]
    return {file.stem for file in files}
