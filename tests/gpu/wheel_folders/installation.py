"""Installs folders of wheels where there is no network, into a directory for PYTHONPATH; the standard library alone.

What came in parts is installed once all of them are there, be it with different calls.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[3]
_PART = re.compile(r"(?P<name>.+\.whl)\.part-(?P<number>\d+)-of-(?P<count>\d+)")


def install(directories: Sequence[Path], site: Path) -> list[str]:
    """Installs the wheels in these folders, without an index, and the project's name and version.

    Returns:
        The wheels of which parts are still to come, with those that are there, for a person.

    Raises:
        ValueError: a folder is missing, or a wheel that was put together is damaged.
        subprocess.CalledProcessError: pip refuses a wheel.
    """
    for directory in directories:
        if not directory.is_dir():
            raise ValueError(f"there is no folder {directory}")
    files = [path for directory in directories for path in sorted(directory.rglob("*")) if path.is_file()]
    wheels = [path for path in files if path.suffix == ".whl"]
    parts = site / ".parts"
    parts.mkdir(parents=True, exist_ok=True)
    for path in files:
        if _PART.fullmatch(path.name):
            (parts / path.name).write_bytes(path.read_bytes())
    joined, incomplete = _join(parts)
    if wheels or joined:
        options = ("-q", "--no-index", "--no-deps", "--no-compile", "--upgrade", "--target", str(site))
        _pip("install", *options, *map(str, (*wheels, *joined)))
    for path in joined:
        path.unlink()
    _declare_project(site)
    return incomplete


def _declare_project(site: Path) -> None:
    """Has the project's version be known, as the service wants it; its code is the checkout's."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    name, version = project["name"].replace("-", "_"), project["version"]
    directory = site / f"{name}-{version}.dist-info"
    directory.mkdir(exist_ok=True)
    (directory / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {version}\n")


def _join(parts: Path) -> tuple[list[Path], list[str]]:
    """Wheels all of whose parts are there, put together in their place, and what is said of the others."""
    by_wheel: dict[tuple[str, int], dict[int, Path]] = {}
    for path in parts.iterdir():
        found = _PART.fullmatch(path.name)
        if found is not None:
            by_wheel.setdefault((found["name"], int(found["count"])), {})[int(found["number"])] = path
    joined, incomplete = [], []
    for (name, count), numbers in by_wheel.items():
        if len(numbers) < count:
            incomplete.append(f"{name}: parts {sorted(numbers)} of {count}")
            continue
        whole = parts / name
        whole.write_bytes(b"".join(numbers[number].read_bytes() for number in range(1, count + 1)))
        if not zipfile.is_zipfile(whole) or zipfile.ZipFile(whole).testzip() is not None:
            raise ValueError(f"{name} is damaged: its parts are not of one file")
        for path in numbers.values():
            path.unlink()
        joined.append(whole)
    return joined, incomplete


def _pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", *arguments], check=True)
