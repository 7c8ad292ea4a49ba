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
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path

INSTALL_SECONDS = 600.0
KEPT_UNUSED_SECONDS = 7 * 24 * 3600.0
"""Packages that nobody has used for so long are removed when others are installed."""

_OPTIONS = (
    *("--only-binary", ":all:"),
    *("--no-input", "--disable-pip-version-check", "--no-warn-script-location", "--quiet"),
    *("--root-user-action", "ignore"),
)
_SHOWN_OF_OUTPUT = 600
_OWN = "shampoo-tuner"
_NEW = "new-"
"""How the directories of installations begin that have not ended."""


class NotInstalled(Exception):
    """Packages that pip did not install; the message is pip's."""


@dataclass(frozen=True, slots=True)
class Packages:
    """Packages, installed; they stay for as long as they are held."""

    paths: tuple[Path, ...]
    """To import them from, after all else."""
    lock: int
    """An open file, which ends with the process at the latest; -1: there is nothing to hold."""

    def close(self) -> None:
        if self.lock >= 0:
            os.close(self.lock)


def hold(requirements: Sequence[str], parent: Path) -> Packages:
    """Installs packages below `parent`, unless they are there. It may take minutes.

    Raises:
        NotInstalled: there are none such, or they do not go with what is installed here, or not in time.
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
            if _is_at(lock, lock_file) and directory.is_dir():
                os.utime(directory)
                break
            fcntl.flock(lock, fcntl.LOCK_EX)
            if _is_at(lock, lock_file) and not directory.is_dir():
                _remove_unused(parent)
                _install(requirements, constraints, directory)
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)
    found = (*directory.glob("lib*/python*/site-packages"), *directory.glob("local/lib*/python*/dist-packages"))
    return Packages(found, lock)


def _is_at(lock: int, file: Path) -> bool:
    """Whether an open file still stands at its path: whoever removes packages removes their lock."""
    try:
        return os.path.samestat(os.fstat(lock), file.stat())
    except FileNotFoundError:
        return False


def _install(requirements: Sequence[str], constraints: Sequence[str], directory: Path) -> None:
    # Not `importlib.util.find_spec`: setuptools' hook takes a look for pip for pip itself, and then refuses to be
    # imported in this process, which torch's compiler does.
    if PathFinder.find_spec("pip") is None:
        raise NotInstalled("pip is not installed here")
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=_NEW) as temporary:
        new, listed = Path(temporary) / "packages", Path(temporary) / "constraints.txt"
        new.mkdir()
        listed.write_text("".join(constraints), encoding="utf-8")
        command = [sys.executable, "-m", "pip", "install", "--prefix", str(new), "--constraint", str(listed)]
        try:
            subprocess.run(
                [*command, *_OPTIONS, *requirements],
                cwd=temporary,  # nothing lies there that pip could take for a package, or Python for a module of pip's
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=INSTALL_SECONDS,
                check=True,
            )
        except subprocess.TimeoutExpired as error:
            raise NotInstalled(f"pip takes more than {INSTALL_SECONDS:g} s") from error
        except subprocess.CalledProcessError as error:
            said = error.output.decode(errors="replace").strip()[-_SHOWN_OF_OUTPUT:]
            raise NotInstalled(f"pip says: {' '.join(said.split())}") from error
        new.rename(directory)


def _remove_unused(parent: Path) -> None:
    """Removes packages that nobody holds, and nobody has for a week, and what is left of installations that failed."""
    for lock_file in parent.glob("*.lock"):
        directory = lock_file.with_suffix("")
        if _is_used(directory):
            continue
        try:
            lock = os.open(lock_file, os.O_RDWR)
        except FileNotFoundError:  # another process has just removed it
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(lock, lock_file):
                shutil.rmtree(directory, ignore_errors=True)
                lock_file.unlink()
        except BlockingIOError:
            pass
        finally:
            os.close(lock)
    for unfinished in parent.glob(f"{_NEW}*"):
        if not _is_used(unfinished):
            shutil.rmtree(unfinished, ignore_errors=True)


def _is_used(directory: Path) -> bool:
    """Whether somebody has held what lies there in the last week."""
    try:
        return directory.stat().st_mtime > time.time() - KEPT_UNUSED_SECONDS
    except FileNotFoundError:
        return False
