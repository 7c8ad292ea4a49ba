"""The files of a user's directory that go along with a job."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from pathspec import GitIgnoreSpec

from service.code.archive import MAX_BYTES, MAX_FILES, CodeFile, UnusableCode

IGNORE_FILES = (".shampooignore", ".gitignore")
"""The first of them that stands in the directory says what is left out, as Git reads it."""
ALWAYS_LEFT_OUT = (
    *(".git", ".hg", ".svn", ".venv", "__pycache__", "*.pyc", ".ipynb_checkpoints", ".DS_Store"),
    *(".mypy_cache", ".pytest_cache", ".ruff_cache", ".tox", "node_modules", "*.egg-info"),
    *IGNORE_FILES,
)


def collect(directory: Path) -> dict[str, CodeFile]:
    """The files below a directory by name, without what is to be left out. A link to one of them is followed.

    Raises:
        UnusableCode: it is no directory, or has too much in it, or a link that leads out, or something that is no
            file.
    """
    if not directory.is_dir():
        raise UnusableCode(f"{str(directory)!r} is no directory")
    root = directory.resolve()
    ignore = next((file for name in IGNORE_FILES if (file := root / name).is_file()), None)
    try:
        lines = () if ignore is None else ignore.read_text(encoding="utf-8-sig").splitlines()
        spec = GitIgnoreSpec.from_lines([*lines, *ALWAYS_LEFT_OUT])
        found: dict[str, CodeFile] = {}
        num_bytes = 0
        for name, path in _paths(root, spec):
            target = path.resolve()
            if not target.is_relative_to(root):
                raise UnusableCode(f"{name!r} is a link that leads out of the directory")
            status = target.stat()
            if not stat.S_ISREG(status.st_mode):
                raise UnusableCode(f"{name!r} is no regular file")
            num_bytes += status.st_size
            if len(found) >= MAX_FILES or num_bytes > MAX_BYTES:
                left_out = " or ".join(IGNORE_FILES)
                raise UnusableCode(
                    f"{str(directory)!r} has more than {MAX_FILES} files or {MAX_BYTES // 10**6} MB in it, "
                    f"at {name!r}: name what is to be left out in a {left_out} there"
                )
            found[name] = CodeFile(target.read_bytes(), is_executable=bool(status.st_mode & stat.S_IXUSR))
    except (OSError, ValueError) as error:
        if isinstance(error, UnusableCode):
            raise
        raise UnusableCode(f"{str(directory)!r} cannot be read: {error}") from error
    if not found:
        raise UnusableCode(f"there is no file in {str(directory)!r} that is not left out")
    return found


def _paths(root: Path, spec: GitIgnoreSpec) -> Iterator[tuple[str, Path]]:
    """Names and paths of what is not left out, in their order; no link to a directory is followed."""
    for at, directories, files in os.walk(root):
        here = Path(at).relative_to(root)
        kept = []
        for directory in sorted(directories):
            name = (here / directory).as_posix()
            if spec.match_file(f"{name}/"):
                continue
            if (Path(at) / directory).is_symlink():
                raise UnusableCode(f"{name!r} is a link to a directory")
            kept.append(directory)
        directories[:] = kept
        for file in sorted(files):
            name = (here / file).as_posix()
            if not spec.match_file(name):
                yield name, Path(at) / file
