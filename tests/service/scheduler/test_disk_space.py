"""The room on the disks of a worker: what is told of it, and that no job is begun without."""

from __future__ import annotations

import logging
import os
import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from service.scheduler.disk_space import Room
from service.settings import Settings

Usage = namedtuple("Usage", "total used free")
FileSystem = namedtuple("FileSystem", "f_frsize f_blocks f_bfree f_bavail f_files f_favail")


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


def test_a_disk_that_takes_no_more_files_is_full_whatever_is_free_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = Room(Settings(data_dir=tmp_path))
    monkeypatch.setattr(os, "statvfs", lambda _path: FileSystem(4096, 2**20, 2**19, 2**19, 65_536, 12))
    why = "12 more files can be made, and 1000 needed"
    assert room.why_none() == f"disk: {why}; checkpoints: {why}"


def test_a_file_system_that_counts_no_files_has_room_for_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _path: FileSystem(4096, 2**20, 2**19, 2**19, 0, 0))
    assert Room(Settings(data_dir=tmp_path)).is_there()
