"""A folder to import torch from, with what torch itself needs and nothing else."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path


def link_torch(directory: Path) -> None:
    """Fills the folder with links to what is installed of torch and its requirements."""
    for name in _requirements("torch"):
        distribution = metadata.distribution(name)
        for top in {file.parts[0] for file in distribution.files or () if file.parts[0] != ".."}:
            source = Path(str(distribution.locate_file(top)))
            if not (directory / top).exists() and source.exists() and not top.endswith(".pth"):
                (directory / top).symlink_to(source)


def _requirements(name: str) -> set[str]:
    """The distribution and those it needs, by name, as far as they are installed."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        current = waiting.pop()
        try:
            requirements = metadata.requires(current) or []
        except metadata.PackageNotFoundError:
            continue
        if current not in found:
            found.add(current)
            waiting += [
                re.split(r"[^\w.-]", requirement, maxsplit=1)[0].lower()
                for requirement in requirements
                if "extra ==" not in requirement
            ]
    return found
