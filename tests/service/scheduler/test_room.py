"""The room on the disks of a worker: what is told of it, and that no job is begun without."""

from __future__ import annotations

import logging
import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from service.scheduler.room import Room
from service.settings import Settings

Usage = namedtuple("Usage", "total used free")


def test_a_full_disk_is_told_once_and_so_is_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    room = Room(Settings(data_dir=tmp_path))
    caplog.set_level(logging.INFO)
    assert room.is_there()
    assert caplog.messages == []
    with monkeypatch.context() as full:
        full.setattr(shutil, "disk_usage", lambda _path: Usage(2**30, 2**30 - 2**20, 2**20))
        assert [room.is_there() for _ in range(3)] == [False] * 3
    assert [room.is_there() for _ in range(3)] == [True] * 3
    why = "1 MiB are free, and 64 needed"
    assert caplog.messages == [
        f"no job is begun until there is room: disk: {why}; checkpoints: {why}",
        "there is room again: jobs are begun",
    ]
