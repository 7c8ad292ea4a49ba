"""The commit of the checkout whose packages this process imports."""

from __future__ import annotations

from pathlib import Path

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
