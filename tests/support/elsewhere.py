"""Other systems than the one that the tests run on, as far as a process can be made to take itself to be there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import psutil

PYTHON_ELSEWHERE = Path(__file__).with_name("python_elsewhere")
"""A directory that takes from a Python which has it in `PYTHONPATH` what it lacks elsewhere; see there."""


def python_elsewhere(variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Variables by which a Python lacks that, beside others."""
    path = [str(PYTHON_ELSEWHERE), *filter(None, [variables.get("PYTHONPATH")])]
    return {**variables, "PYTHONPATH": os.pathsep.join(path)}


def killpg_of_macos(group: int, number: int) -> None:
    """`os.killpg` as it is on macOS, which refuses it where all have ended and one has not been waited for."""
    members = [process for process in psutil.process_iter() if _is_in(group, process)]
    if members and all(process.status() == psutil.STATUS_ZOMBIE for process in members):
        raise PermissionError
    os.kill(-group, number)


def _is_in(group: int, process: psutil.Process) -> bool:
    try:
        return os.getpgid(process.pid) == group
    except ProcessLookupError:
        return False
