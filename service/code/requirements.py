"""Packages that a job's code imports beside what is installed here: installed by pip, each list of them once, into a
directory of its own.

What is installed here stays as it is: a requirement that needs another version of it is refused. Wheels alone are
taken, so that nothing of a package runs while it is installed.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path

from service.code.package_room import NEW, bytes_below, is_at, remove_unused, room_left

INSTALL_SECONDS = 600.0
"""Time for pip to fetch and unpack one list of packages, by judgement: a job waits for it."""
LOOK_SECONDS = 0.5
"""Time between two looks at what pip has written."""

_OPTIONS = (
    *("--only-binary", ":all:"),
    "--no-cache-dir",  # which is nobody's to bound, and of no use: a list is installed once
    *("--no-input", "--disable-pip-version-check", "--no-warn-script-location", "--quiet"),
    *("--root-user-action", "ignore"),
)
ROOM_SETTING = "SHAMPOO_TUNER_PACKAGE_BYTES"
_SHOWN_OF_OUTPUT = 600
"""Last characters of what pip said, by judgement: the lines that say why."""
_OWN = "shampoo-tuner"


class NotInstalled(Exception):
    """Packages that pip did not install; the message is pip's."""


@dataclass(frozen=True, slots=True)
class Packages:
    """Packages, installed; they stay for as long as they are held."""

    paths: tuple[Path, ...]
    """Directories to import them from, after all else."""
    lock: int
    """An open file, which ends with the process at the latest; -1: there is nothing to hold."""

    def close(self) -> None:
        if self.lock >= 0:
            os.close(self.lock)


def hold(requirements: Sequence[str], parent: Path, *, max_bytes: int) -> Packages:
    """Installs packages below `parent`, unless they are there. It may take minutes.

    Args:
        max_bytes: most bytes of all that lies below `parent`. Where it is too much, packages go that nobody holds.

    Raises:
        NotInstalled: there are none such, or they do not go with what is installed here, or not in time or in the room
            that is left.
    """
    if not requirements:
        return Packages((), -1)
    constraints = sorted(
        {  # a path that stands twice in `sys.path` has each of its packages twice
            f"{name}=={found.version}\n"
            for found in importlib.metadata.distributions()
            if (name := found.metadata["Name"]) and name != _OWN
        }
    )
    here = [sorted(requirements), sys.version, sysconfig.get_platform(), constraints]
    key = hashlib.sha256(json.dumps(here).encode()).hexdigest()[:32]
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory = parent / key
    lock_file = parent / f"{key}.lock"
    while True:
        lock = os.open(lock_file, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_SH)
            if is_at(lock, lock_file) and directory.is_dir():
                os.utime(directory)
                break
            fcntl.flock(lock, fcntl.LOCK_EX)
            if is_at(lock, lock_file) and not directory.is_dir():
                remove_unused(parent)
                _install(requirements, constraints, directory, max_bytes=max_bytes)
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)
    found = (*directory.glob("lib*/python*/site-packages"), *directory.glob("local/lib*/python*/dist-packages"))
    return Packages(found, lock)


def _install(requirements: Sequence[str], constraints: Sequence[str], directory: Path, *, max_bytes: int) -> None:
    # Not `importlib.util.find_spec`: setuptools' hook takes a look for pip for pip itself, and then refuses to be
    # imported in this process, which torch's compiler does.
    if PathFinder.find_spec("pip") is None:
        raise NotInstalled("pip is not installed here")
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=NEW) as temporary:
        new, listed = Path(temporary) / "packages", Path(temporary) / "constraints.txt"
        new.mkdir()
        listed.write_text("".join(constraints), encoding="utf-8")
        command = [sys.executable, "-m", "pip", "install", "--prefix", str(new), "--constraint", str(listed)]
        _run([*command, *_OPTIONS, *requirements], Path(temporary), max_bytes=max_bytes)
        new.rename(directory)


def _run(command: Sequence[str], temporary: Path, *, max_bytes: int) -> None:
    """Runs pip in a directory that has room for all that it writes; `max_bytes` is that of the directory's parent.

    Raises:
        NotInstalled: it failed, or takes too long, or needs more.
    """
    room = room_left(temporary.parent, max_bytes)
    output = temporary / "said.txt"
    ends_at = time.monotonic() + INSTALL_SECONDS
    with output.open("wb") as said:
        pip = subprocess.Popen(
            command,
            cwd=temporary,  # nothing lies there that pip could take for a package, or Python for a module of pip's
            env={**os.environ, "TMPDIR": str(temporary)},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
        )
    try:
        has_ended = False
        while not has_ended:
            try:
                has_ended = pip.wait(LOOK_SECONDS) is not None
            except subprocess.TimeoutExpired:
                if time.monotonic() > ends_at:
                    raise NotInstalled(f"pip takes more than {INSTALL_SECONDS:g} s") from None
            taken = bytes_below(temporary)
            if taken > room:
                room = room_left(temporary.parent, max_bytes) + taken
            if taken > room:
                raise NotInstalled(
                    f"all packages of jobs together may take {max_bytes} bytes ({ROOM_SETTING}), "
                    "and with these they would take more than that beside those that are in use"
                )
    finally:
        pip.kill()
        pip.wait()
    if pip.returncode:
        said_last = output.read_text(errors="replace").strip()[-_SHOWN_OF_OUTPUT:]
        raise NotInstalled(f"pip says: {' '.join(said_last.split())}")
