"""Packages that a job's code requires: installed once by a real pip, beside what is there, and kept while in use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from service.cli.job_file import read_requirements
from service.code.package_room import KEPT_UNUSED_SECONDS, bytes_below
from service.code.requirements import NotInstalled, hold
from service.errors import InvalidInput
from tests.support.service.wheels import index_alone, write_wheel
from trainers.processes.job_code import JobCode

ROOM = 10**9
PRINTED = "import sent_package, numpy; print(sent_package.NAME, sent_package.__file__)"


@pytest.mark.processes
def test_packages_are_installed_once_and_what_is_here_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index, place = tmp_path / "index", tmp_path / "packages"
    write_wheel(index, "sent-package", "NAME = 'sent-package'", requires=["numpy"])
    write_wheel(index, "wants-another", "", requires=["pydantic<1"])
    index_alone(monkeypatch, index)
    held = hold(["sent-package>=1"], place, max_bytes=ROOM)
    [path] = held.paths
    assert {entry.name.partition("-")[0] for entry in path.iterdir()} <= {
        "sent_package",
        "sent_package.py",
        "__pycache__",
    }

    # A week later, others are installed.
    [directory] = (entry for entry in place.iterdir() if entry.is_dir())
    os.utime(directory, (0, directory.stat().st_mtime - 2 * KEPT_UNUSED_SECONDS))
    with pytest.raises(NotInstalled, match="wants-another"):
        hold(["wants-another"], place, max_bytes=ROOM)
    assert path.is_dir(), "somebody holds it"

    code = JobCode(tmp_path, packages=held.paths)
    told = "from trainers.processes.job_code import import_from_job_code as enter; enter(); "
    shown = subprocess.run(
        [sys.executable, "-c", told + PRINTED],
        env={**os.environ, **code.variables},
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout == f"sent-package {path / 'sent_package.py'}\n"

    (index / "sent_package-1.0-py3-none-any.whl").unlink()
    again = hold(["sent-package>=1"], place, max_bytes=ROOM)
    assert again.paths == held.paths
    for each in (held, again):
        each.close()
    os.utime(directory, (0, directory.stat().st_mtime - 2 * KEPT_UNUSED_SECONDS))
    with pytest.raises(NotInstalled, match="wants-another"):
        hold(["wants-another"], place, max_bytes=ROOM)
    [lock] = place.iterdir()
    assert lock.suffix == ".lock", "that of the installation that failed alone is left, until the next"
    assert lock.stem != directory.name


@pytest.mark.processes
def test_where_pip_was_asked_torch_can_still_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index_alone(monkeypatch, tmp_path / "index")
    script = (
        "import pathlib, sys\n"
        "from service.code.requirements import NotInstalled, hold\n"
        "try: hold(['no-such-package'], pathlib.Path(sys.argv[1]), max_bytes=10**9)\n"
        "except NotInstalled: import setuptools\n"  # as the compiler does; Python 3.11 has a distutils of its own
        "else: sys.exit('pip was not asked')\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "packages")], check=True)


@pytest.mark.processes
def test_all_packages_together_have_so_much_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index, place = tmp_path / "index", tmp_path / "packages"
    for name in ("first-one", "second-one"):
        write_wheel(index, name, f"TEXT = '{'x' * 200_000}'")
    index_alone(monkeypatch, index)
    first = hold(["first-one"], place, max_bytes=ROOM)
    room = bytes_below(place) + 50_000
    with pytest.raises(NotInstalled, match="SHAMPOO_TUNER_PACKAGE_BYTES"):
        hold(["second-one"], place, max_bytes=room)
    assert first.paths[0].is_dir()
    first.close()
    second = hold(["second-one"], place, max_bytes=room)
    assert not first.paths[0].exists()
    assert second.paths[0].is_dir()
    assert bytes_below(place) < room
    second.close()


def test_nothing_required_is_nothing_installed(tmp_path: Path) -> None:
    held = hold([], tmp_path / "packages", max_bytes=ROOM)
    held.close()
    assert held.paths == ()
    assert not any(tmp_path.iterdir())


def test_a_file_of_requirements_is_read_without_its_comments(tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text("# what it needs\neinops>=0.8  # for rearrange\n\ntimm\n")
    assert read_requirements(file) == ["einops>=0.8", "timm"]
    file.write_text("einops\ntimm\n", encoding="utf-8-sig")  # as editors on Windows write it
    assert read_requirements(file) == ["einops", "timm"]
    file.write_text("--index-url https://example.org\n")
    with pytest.raises(InvalidInput, match="options of pip"):
        read_requirements(file)
