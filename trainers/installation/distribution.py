"""The distribution: its version, the commit of its checkout, and packages of other projects under the names of ours."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

DISTRIBUTION = "shampoo-tuner"
PACKAGES = ("search_spaces", "service", "shampoo", "trainers")
MARK = "# A package of the distribution shampoo-tuner: trainers.installation.distribution looks for this line.\n"
"""A line in the `__init__.py` of each of `PACKAGES`."""


class ForeignPackage(ImportError):
    """Python finds another project's package where it should find ours; the message says which, where and why."""


@cache  # it is read out of the whole README, which the metadata contain
def version() -> str:
    """The version that was installed when this was first asked; "unknown" for a checkout that never was."""
    from importlib import metadata  # slow to import, and not every command tells its version

    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "unknown"


def refuse(error: ImportError) -> NoReturn:
    """Ends a command that cannot run in this installation: a message without a traceback, and exit status 2."""
    sys.stderr.write(f"{DISTRIBUTION}: {error}\n")
    sys.exit(2)


def is_command() -> bool:
    """True in a process that the console script started."""
    return Path(sys.argv[0]).stem == DISTRIBUTION


def check_packages(names: Iterable[str], *, directories: Sequence[str] | None = None) -> None:
    """Refuses packages of other projects that Python finds under names of ours.

    It looks at files and imports nothing. A name that is not found at all is left to the import that needs it.

    Args:
        names: some of `PACKAGES`.
        directories: where to look, instead of where this process imports from.

    Raises:
        ForeignPackage: the first that is not ours.
    """
    for name in names:
        spec = find_spec(name) if directories is None else PathFinder.find_spec(name, directories)
        if spec is not None and spec.origin is not None and not _is_ours(spec):
            raise ForeignPackage(_told(name, spec.origin), name=name, path=spec.origin)


def check_packages_here() -> None:
    """Refuses packages of other projects, under names of ours, in the current directory.

    The processes that a service starts import from there first: it is where a user's own workloads are.

    Raises:
        ForeignPackage: there is one.
    """
    check_packages(PACKAGES, directories=[str(Path.cwd())])


def _is_ours(spec: ModuleSpec) -> bool:
    assert spec.origin is not None
    try:
        return MARK in Path(spec.origin).read_text(encoding="utf-8")
    except OSError:  # not a file, as within a zip archive
        return True
    except UnicodeDecodeError:
        return False


def _told(name: str, origin: str) -> str:
    site = Path(__file__).parents[2]
    if Path(origin).parents[1] != site:
        return (
            f"Python finds another project's {name!r} in {origin}, and not the package of that name that "
            f"{DISTRIBUTION} has in {site}. Rename it, start from another directory, or take its directory off "
            "PYTHONPATH"
        )
    from importlib import metadata

    others = set(metadata.packages_distributions().get(name, ())) - {DISTRIBUTION}
    return (
        f"{' and '.join(sorted(others)) or 'something else'} has put a package called {name!r} in the place of the one "
        f"that {DISTRIBUTION} has in {site}. They cannot share an environment: install {DISTRIBUTION} in one of its "
        "own (python -m venv)"
    )


ROOT = Path(__file__).parents[2]
"""The directory of the packages."""


def commit(root: Path = ROOT) -> str | None:
    """The commit that is checked out in `root`, 40 digits; None: the packages are no git checkout's.

    It reads git's files and starts no process. What was changed since the commit it does not tell.
    """
    git = root / ".git"
    try:
        if git.is_file():  # of a worktree, which names its own directory
            git = root / git.read_text().partition("gitdir:")[2].strip()
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref:"):
            return head or None
        name = head.partition("ref:")[2].strip()
        common = git / "commondir"
        shared = git / common.read_text().strip() if common.is_file() else git
        for place in (git / name, shared / name):
            if place.is_file():
                return place.read_text().strip()
        for line in (shared / "packed-refs").read_text().splitlines():
            if line.endswith(f" {name}"):
                return line.partition(" ")[0]
    except OSError:
        return None
    return None
