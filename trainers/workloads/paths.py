"""A first look at the files that options of a workload name: whether they may be read, and whether there is anything to
read, without reading it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

from trainers.config import Json
from trainers.data.roots import DataRoots, first_refusal, leads_out
from trainers.workload.description import WorkloadDescription

MAX_LOOKED_AT = 1000
"""Files, and directories, that may be empty before what holds them counts as data."""


def refused_paths(
    description: WorkloadDescription, options: Mapping[str, Json], data_roots: DataRoots
) -> Iterator[tuple[str, str]]:
    """Option and refusal of each path, in the order of the description, that may not be read, nor what links in it lead
    to. Walks through directories."""
    for name, option in description.options.items():
        for path in option.paths_in(options.get(name)):
            refusal = first_refusal(data_roots, path)
            if refusal is not None:
                yield name, refusal


def problems_of_paths(
    description: WorkloadDescription, options: Mapping[str, Json], data_roots: DataRoots | None = None
) -> Iterator[tuple[str, str]]:
    """Option and problem of each path on this machine that a trial could not read, in the order of the description.

    Args:
        data_roots: links in a directory that lead out of them are named, and not followed: by whether a directory has
            files, they would tell what there is elsewhere. None: all are followed.

    That a file is of the wrong kind, or a directory of another layout, the workload says when it is built.
    """
    for name, option in description.options.items():
        given = options.get(name)
        if option.role == "path" and isinstance(given, str) and given:
            problem = _problem(given, data_roots)
            if problem is not None:
                yield name, problem


def _problem(given: str, data_roots: DataRoots | None) -> str | None:
    try:
        path = Path(given).expanduser()
        if not path.exists():
            return f"there is nothing at {given!r}{_deepest_parent(path)}"
        if not os.access(path, os.R_OK):
            return f"{given!r} may not be read by the user whom the service runs as"
        if path.is_file():
            return None if path.stat().st_size else f"{given!r} is an empty file"
        if not path.is_dir():  # a pipe would be waited for, and a device may never end
            return f"{given!r} is neither a file nor a directory"
        return _problem_of_directory(path, given, data_roots)
    except (OSError, RuntimeError, ValueError) as error:  # too long a name, no such home, NUL
        return f"{given!r} cannot be looked at: {error}"


def _deepest_parent(path: Path) -> str:
    """The part of a path that there is, in words."""
    above = next((parent for parent in path.absolute().parents if parent.exists()), None)
    return "" if above is None or above == path.absolute().parent else f": {str(above)!r} is as far as it leads"


def _problem_of_directory(path: Path, given: str, data_roots: DataRoots | None) -> str | None:
    files, num_seen = list[Path](), 0
    for entry in islice(_entries_below(path), MAX_LOOKED_AT):
        num_seen += 1
        if data_roots is not None and entry.is_symlink() and data_roots.leads_out(entry):
            return leads_out(given, entry)
        if entry.is_file():
            files.append(entry)
    if num_seen == MAX_LOOKED_AT:
        return None
    if not files:
        return f"{given!r} is a directory without a file"
    if not any(file.stat().st_size for file in files):
        return f"{given!r} is a directory of empty files"
    return None


def _entries_below(path: Path) -> Iterator[Path]:
    """Files, and links to directories, which are followed once the next entry is asked for."""
    walked = os.walk(path, followlinks=True)
    for directory, inner, names in islice(walked, MAX_LOOKED_AT):  # a link may lead in a circle
        yield from (link for name in inner if (link := Path(directory, name)).is_symlink())
        yield from (Path(directory, name) for name in names)
