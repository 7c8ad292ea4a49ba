"""Packages for tests: wheels in a directory that is pip's only index."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest


def write_wheel(directory: Path, name: str, source: str, *, version: str = "1.0", requires: Sequence[str] = ()) -> None:
    """Writes a wheel with one module, named like the package with `_` for `-`."""
    directory.mkdir(exist_ok=True)
    module = name.replace("-", "_")
    own = f"{module}-{version}.dist-info"
    metadata = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {other}" for other in requires)]
    with zipfile.ZipFile(directory / f"{module}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{module}.py", source)
        wheel.writestr(f"{own}/METADATA", "\n".join(["Metadata-Version: 2.1", *metadata, ""]))
        wheel.writestr(f"{own}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{own}/RECORD", "")


def index_alone(monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    """Lets pip, in this process's children, find only the wheels of a directory."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(directory))
