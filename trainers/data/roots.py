"""The directories that trials may read: whether a path that a job names lies in one of them.

What a job names is opened by the user whom the service runs as, who may read more than those who submit jobs. A path is
judged twice, by where it says that it lies and by where it does once links are followed, and never by what is there: of
what lies outside, nobody is told whether it exists.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

CLOSED = ("/boot", "/dev", "/etc", "/proc", "/run", "/sys", "/var/run")
"""Read only where a root lies in them, as `/dev/shm/data`."""


@dataclass(frozen=True, slots=True)
class DataRoots:
    """Directories whose files may be read, those below included, but for hidden ones."""

    roots: tuple[str, ...]
    """Absolute; a hidden directory is one of them only by itself, e.g. `/home/ada/.cache/sets`."""
    closed: tuple[str, ...] = ()
    """Absolute; read only where a root lies in them, as are `CLOSED`."""
    setting: str = ""
    """The name of what says which they are, for messages."""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The roots that `dataclasses.asdict` and JSON made into `data`."""
        return cls(tuple(data["roots"]), tuple(data["closed"]), data["setting"])

    def refusal(self, path: str) -> str | None:
        """The reason why a path is not to be opened; None: it may be. The same words whether there is something or
        not."""
        try:
            full = _absolute(path)
            is_inside = full is not None and self._holds(full, resolved=False) and self._holds(full, resolved=True)
        except (OSError, RuntimeError, ValueError):  # links in a circle, NUL, half a surrogate pair
            is_inside = False
        if is_inside:
            return None
        by_default = "the home of the service's user and the directory that it was started in"
        named = f" ({self.setting} of the service names them; by default {by_default})" if self.setting else ""
        where = f"in none of the directories that jobs may read{named}, or hidden there"
        return f"{path!r} is {where}, or leads back with '..'"

    def leads_out(self, link: Path) -> bool:
        """True if what a link leads to lies out of the roots, or in a circle."""
        try:
            return not self._holds(link, resolved=True)
        except (OSError, RuntimeError):
            return True

    def link_out(self, directory: Path) -> Path | None:
        """The first link in a directory, or below, that leads out of the roots or in a circle; None: there is none.
        Hidden entries are passed over, as by those who read directories."""
        return next(self._links_out(directory, set()), None)

    def _links_out(self, directory: Path, seen: set[Path]) -> Iterator[Path]:
        real = directory.resolve()
        if real in seen:
            return
        seen.add(real)
        for parent, names, files in os.walk(real):
            names[:] = [name for name in names if not name.startswith(".")]
            for name in (*names, *files):
                if name.startswith(".") or not (link := Path(parent, name)).is_symlink():
                    continue
                if self.leads_out(link):
                    yield link
                elif link.is_dir():
                    yield from self._links_out(link, seen)

    def _holds(self, path: Path, *, resolved: bool) -> bool:
        """True if the innermost directory around a path that is a root or closed is a root, and nothing is hidden
        below it.

        Args:
            resolved: whether links are followed, those of roots, too.
        """
        place = path.resolve() if resolved else path
        around = [(_depth(_spellings(root, resolved=resolved), place), True) for root in self.roots]
        around += [
            (_depth(map(_any_case, _spellings(root, resolved=resolved)), _any_case(place)), False)
            for root in (*self.closed, *CLOSED)
        ]
        deepest, is_root = max(around, key=lambda found: (found[0], not found[1]), default=(0, False))
        return is_root and deepest > 0 and not any(part.startswith(".") for part in place.parts[deepest:])


def first_refusal(data_roots: DataRoots, path: str) -> str | None:
    """The reason why neither a path nor, if it is a directory, what links in it lead to may be read; None: all may."""
    refusal = data_roots.refusal(path)
    if refusal is not None:
        return refusal
    full = _absolute(path)
    link = data_roots.link_out(full) if full is not None and full.is_dir() else None
    return None if link is None else leads_out(path, link)


def leads_out(path: str, link: Path) -> str:
    """The words of a refusal for a link in a directory; the same wherever it leads, and whether anything is there."""
    return f"{path!r} holds a link that leads out of the directories of data: {str(link)!r}"


def _absolute(text: str) -> Path | None:
    """The absolute path, links not followed; None: it leads back out of a directory, or to another user's home.

    `..` behind a name would tell whether there is a directory of that name, wherever that is.
    """
    if text.startswith("~") and text != "~" and not text.startswith("~/"):
        return None
    path = Path(text).expanduser()
    leading = 0 if path.is_absolute() else next((i for i, part in enumerate(path.parts) if part != ".."), None)
    if leading is not None and ".." in path.parts[leading:]:
        return None
    return Path(os.path.normpath(Path.cwd() / path))


def _spellings(root: str, *, resolved: bool) -> set[Path]:
    return {Path(root).resolve()} if resolved else {Path(os.path.normpath(root)), Path(root).resolve()}


def _any_case(path: Path) -> Path:
    """The same for all spellings that lead to one place on macOS, where `~/library` is `~/Library`."""
    return Path(str(path).casefold()) if sys.platform == "darwin" else path


def _depth(spellings: Iterable[Path], place: Path) -> int:
    """The parts of a directory's path if a place lies in it, else 0."""
    return max((len(one.parts) for one in spellings if place.is_relative_to(one)), default=0)
