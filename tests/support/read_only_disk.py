"""A disk that can only be read, for root as well."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE_SECONDS

_NAMESPACE = ("unshare", "--map-root-user", "--mount", "sh", "-ec")
_MOUNTED = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0"'


def run_with_read_only_disk(disk: Path, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Runs a command for which (and only for it) the directory `disk` is on such a disk; skips the test if nothing can
    be mounted."""
    if subprocess.run([*_NAMESPACE, _MOUNTED, disk], check=False, capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    return subprocess.run(
        [*_NAMESPACE, f'{_MOUNTED}; exec "$@"', disk, *command],
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
