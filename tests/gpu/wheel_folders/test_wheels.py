"""Wheels are found for another machine, cut, carried and installed there, without an index."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.gpu.wheel_folders.installation import install
from tests.gpu.wheel_folders.wheels import Machine, cut, fetch_missing, packed, read_present, wanted

KIBIBYTE = 1024


def _wheel(directory: Path, name: str, *needs: str, version: str = "1.0", num_bytes: int = 10) -> Path:
    """A wheel of one module, stored without compression."""
    info = f"{name}-{version}.dist-info"
    requirements = "".join(f"Requires-Dist: {need}\n" for need in needs)
    files = {
        f"{name}.py": f"VERSION = {version!r}\n" + "#" * num_bytes,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requirements}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in (*files, f"{info}/RECORD"))
    path = directory / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, content in (*files.items(), (f"{info}/RECORD", record)):
            archive.writestr(file, content)
    return path


@pytest.mark.processes
def test_what_a_machine_lacks_is_found_with_all_that_it_needs_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, fetched = tmp_path / "index", tmp_path / "fetched"
    index.mkdir()
    fetched.mkdir()
    needs = ("middle<2", "there>=1", "outdated>=2", 'old; python_version < "3.12"', 'new; python_version >= "3.12"')
    _wheel(index, "top", *needs, 'of_extra; extra == "more"', 'unasked; extra == "other"')
    for release in ("1.0", "1.5", "2.0"):
        _wheel(index, "middle", version=release)
    _wheel(index, "outdated", version="2.1")
    _wheel(index, "new", "middle<1.2")  # the first choice, 1.5, has to go
    _wheel(index, "of_extra")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    present = tmp_path / "present.txt"
    present.write_text("There==1.0+cu130\noutdated==1.9\nunknown\n# a comment\n")
    machine = Machine("3.12", "2.28", read_present(present))
    wheels = fetch_missing(["top[more]", "unknown>=9"], machine, fetched)
    assert [wheel.name.removesuffix("-py3-none-any.whl") for wheel in wheels] == [
        *("middle-1.0", "new-1.0", "of_extra-1.0", "outdated-2.1", "top-1.0")
    ]


@pytest.mark.processes
def test_the_parts_of_a_wheel_may_come_one_after_the_other(tmp_path: Path) -> None:
    built, site = tmp_path / "built", tmp_path / "site"
    built.mkdir()
    small, large = _wheel(built, "small", num_bytes=900), _wheel(built, "large", num_bytes=5 * KIBIBYTE)
    folders = packed(list(cut([small, large], 3 * KIBIBYTE)), 3 * KIBIBYTE)
    assert not large.exists()
    assert sum(len(folder) for folder in folders) == 3
    assert all(sum(file.stat().st_size for file in folder) <= 3 * KIBIBYTE for folder in folders)
    carried = []
    for number, folder in enumerate(folders):
        carried.append(tmp_path / str(number))
        carried[-1].mkdir()
        for file in folder:
            file.rename(carried[-1] / file.name)
    assert install(carried[:1], site) == ["large-1.0-py3-none-any.whl: parts [1] of 2"]
    assert not (site / "large.py").exists()
    assert install(carried[1:], site) == []
    code = (
        "import large, small, importlib.metadata as m; print(large.VERSION, small.VERSION, m.version('shampoo-tuner'))"
    )
    shown = subprocess.run([sys.executable, "-S", "-c", code], cwd=site, capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["1.0", "1.0", version("shampoo-tuner")]
    with pytest.raises(ValueError, match="there is no folder"):
        install([tmp_path / "nowhere"], site)


def test_parts_of_different_files_are_refused(tmp_path: Path) -> None:
    wheel = _wheel(tmp_path, "whole", num_bytes=4 * KIBIBYTE)
    first, second = cut([wheel], 3 * KIBIBYTE)
    second.write_bytes(second.read_bytes()[::-1])
    with pytest.raises(ValueError, match="is damaged"):
        install([tmp_path], tmp_path / "site")
    assert first.exists()


def test_only_what_the_stages_import_is_wanted() -> None:
    names = {requirement.split(">")[0] for requirement in wanted()}
    assert {"torch", "ray[tune]", "pytest", "hypothesis"} <= names
    assert not {"mypy", "ruff", "playwright"} & names
