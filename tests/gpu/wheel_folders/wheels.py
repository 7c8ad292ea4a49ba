"""Wheels that a machine without a network lacks, in folders of a size that can be carried; run where there is one.

A file larger than a folder may be is cut into parts, which `installation` puts together there.
"""

from __future__ import annotations

import email
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from trainers.installation.distribution import DISTRIBUTION

ROOT = Path(__file__).parents[3]
FOR_TESTS = ("hypothesis", "pillow", "pytest")
"""Of the extra `test`: what the tests marked gpu import."""
OLDEST_GLIBC = 5


@dataclass(frozen=True, slots=True)
class Machine:
    """Where the wheels are to be installed."""

    python: str
    """`3.12`"""
    glibc: str
    """`2.39`"""
    present: Mapping[str, str | None]
    """Versions of what is installed there, by normalised name; None: unknown, and taken for good enough."""

    def pip_options(self) -> list[str]:
        """Options that have pip choose wheels for it."""
        major, minor = self.glibc.split(".")
        releases = range(int(minor), OLDEST_GLIBC - 1, -1)
        platforms = [f"manylinux_{major}_{release}_x86_64" for release in releases]
        platforms += ["manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64", "linux_x86_64"]
        chosen = [option for platform in platforms for option in ("--platform", platform)]
        return ["--only-binary=:all:", "--implementation", "cp", "--python-version", self.python, *chosen]

    def markers(self) -> dict[str, str]:
        """The environment that requirements may depend on."""
        return {
            "implementation_name": "cpython",
            "os_name": "posix",
            "platform_machine": "x86_64",
            "platform_python_implementation": "CPython",
            "platform_system": "Linux",
            "python_full_version": f"{self.python}.0",
            "python_version": self.python,
            "sys_platform": "linux",
        }


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def read_present(path: Path) -> dict[str, str | None]:
    """A file with a package on each line, `NAME==VERSION` as `pip freeze` prints it, or its name alone."""
    found: dict[str, str | None] = {}
    for line in path.read_text().splitlines():
        name, _, rest = line.partition("#")[0].partition("@")[0].strip().partition("==")
        if name and not name.startswith("-"):
            # A local part, as of 2.11.0+cu130, is on no index.
            found[normalised(name)] = rest.partition("+")[0].strip() or None
    return found


def wanted() -> list[str]:
    """The requirements of the stages: the project's, and those of the tests that they run."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    of_tests = (text for text in of_extra("test", extras) if _name(text) in FOR_TESTS)
    return [*project["dependencies"], *of_extra("service", extras), *of_tests]


def of_extra(name: str, extras: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """The requirements of an extra of the project, those of the extras that it refers to in place of the references."""
    for text in extras[name]:
        requirement = Requirement(text)
        if requirement.name == DISTRIBUTION:
            for other in sorted(requirement.extras):
                yield from of_extra(other, extras)
        else:
            yield text


def _name(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found is not None
    return normalised(found.group())


def bring(directory: Path, machine: Machine, *, folder_bytes: int) -> list[str]:
    """Downloads what the machine lacks into numbered folders of the directory; the names of the wheels.

    Raises:
        ValueError: the directory has something in it.
        subprocess.CalledProcessError: pip finds no wheel that would do.
    """
    if directory.exists() and any(directory.iterdir()):
        raise ValueError(f"{directory} must be empty: wheels of two calls may not go together")
    with tempfile.TemporaryDirectory() as scratch:
        wheels = fetch_missing(wanted(), machine, Path(scratch))
        names = sorted(wheel.name for wheel in wheels)
        pieces = list(cut(wheels, folder_bytes))
        for number, folder in enumerate(packed(pieces, folder_bytes), start=1):
            place = directory / str(number)
            place.mkdir(parents=True)
            for piece in folder:
                shutil.move(piece, place / piece.name)
    return names


@dataclass(slots=True)
class _Need:
    """Requirements of one package by all that need it."""

    specifiers: SpecifierSet = field(default_factory=SpecifierSet)
    extras: set[str] = field(default_factory=set)
    wheel: Path | None = None
    num_extras_read: int = -1
    """Of those whose requirements are known; -1: nothing of the wheel is."""


def fetch_missing(requirements: Iterable[str], machine: Machine, scratch: Path) -> list[Path]:
    """Wheels of what is required, with all that they need in turn, and the machine lacks.

    The newest that will do are taken, package by package: unlike pip's own search this takes what the machine has as
    given, also where a release of it is on no index, and it asks for what the other Python needs, not this one.
    """
    needs: dict[str, _Need] = {}
    pending = [Requirement(text) for text in requirements]
    while pending:
        for requirement in pending:
            need = needs.setdefault(normalised(requirement.name), _Need())
            need.specifiers &= requirement.specifier
            need.extras |= requirement.extras
        pending = []
        lacking = {name: need for name, need in needs.items() if not _is_there(name, need, machine)}
        for need in lacking.values():
            if need.wheel is not None and not need.specifiers.contains(_version(need.wheel), prereleases=True):
                need.wheel.unlink()
                need.wheel, need.num_extras_read = None, -1
        unfetched = [f"{name}{need.specifiers}" for name, need in lacking.items() if need.wheel is None]
        if unfetched:
            _pip("download", "-q", "--no-deps", *machine.pip_options(), "-d", str(scratch), *unfetched)
        by_name = {normalised(path.name.partition("-")[0]): path for path in scratch.glob("*.whl")}
        for name, need in lacking.items():
            need.wheel = by_name[name]
            if need.num_extras_read < len(need.extras):
                pending += _requirements(need.wheel, need.extras, machine)
                need.num_extras_read = len(need.extras)
    return sorted(scratch.glob("*.whl"))


def _is_there(name: str, need: _Need, machine: Machine) -> bool:
    if name not in machine.present:
        return False
    version = machine.present[name]
    return version is None or need.specifiers.contains(version, prereleases=True)


def _requirements(wheel: Path, extras: Iterable[str], machine: Machine) -> list[Requirement]:
    """The requirements of a wheel on the machine."""
    with zipfile.ZipFile(wheel) as content:
        [name] = [each for each in content.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", each)]
        metadata = email.message_from_bytes(content.read(name))
    found = []
    for text in metadata.get_all("Requires-Dist", []):
        requirement = Requirement(text)
        if requirement.marker is None or any(
            requirement.marker.evaluate({**machine.markers(), "extra": extra}) for extra in ("", *extras)
        ):
            found.append(requirement)
    return found


def _version(wheel: Path) -> str:
    return wheel.name.split("-")[1]


def cut(files: Iterable[Path], folder_bytes: int) -> Iterable[Path]:
    """The files, and instead of each that is too large parts of it, beside it."""
    for file in files:
        size = file.stat().st_size
        count = -(-size // folder_bytes)
        if count <= 1:
            yield file
            continue
        content = file.read_bytes()
        part_bytes = -(-size // count)
        for number in range(1, count + 1):
            part = file.with_name(f"{file.name}.part-{number}-of-{count}")
            part.write_bytes(content[(number - 1) * part_bytes : number * part_bytes])
            yield part
        file.unlink()


def packed(files: Sequence[Path], folder_bytes: int) -> list[list[Path]]:
    """The files in few folders, none above the limit: the largest first, each where it fits."""
    folders: list[list[Path]] = []
    room: list[int] = []
    for file in sorted(files, key=lambda path: path.stat().st_size, reverse=True):
        size = file.stat().st_size
        place = next((index for index, left in enumerate(room) if left >= size), None)
        if place is None:
            folders.append([])
            room.append(folder_bytes)
            place = len(folders) - 1
        folders[place].append(file)
        room[place] -= size
    return folders


def _pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", *arguments], check=True)
