"""The room of installed packages: those that were not used for longest go, and nobody loses what he holds."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from service.code.package_room import NEW, bytes_below, room_left


def installed(parent: Path, name: str, *, used_at: float) -> Path:
    directory = parent / name
    directory.mkdir()
    (directory / "module.py").write_bytes(bytes(1000))
    (parent / f"{name}.lock").touch()
    os.utime(directory, (0, used_at))
    return directory


def test_what_is_unused_for_longest_goes_until_there_is_room(tmp_path: Path) -> None:
    late, early, held = (
        installed(tmp_path, name, used_at=used_at) for name, used_at in (("a", 3000), ("b", 2000), ("c", 1000))
    )
    (tmp_path / f"{NEW}d").mkdir()
    with (tmp_path / "c.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        assert room_left(tmp_path, 3001) == 1
        assert room_left(tmp_path, 3000) == 1000
        assert [directory.is_dir() for directory in (late, early, held)] == [True, False, True]
        assert room_left(tmp_path, 900) == -100, "that of what is held"
        assert [path.name for path in sorted(tmp_path.iterdir())] == ["c", "c.lock", f"{NEW}d"]
    assert bytes_below(tmp_path) == 1000
