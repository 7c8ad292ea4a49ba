"""A job's directories on the disk: their size, and which of them go; and disks without room."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections import namedtuple
from pathlib import Path
from typing import Any

import psutil
import pytest

from service.scheduler.checkpoint_storage import bytes_in, checkpoints_of
from service.scheduler.disk import (
    LOG_BYTES,
    Room,
    begin_log,
    disk_bytes,
    log_of,
    remove_logs_of_ended_processes,
)
from service.settings import Settings


def test_all_files_of_a_job_are_counted_and_no_others(tmp_path: Path) -> None:
    run_directory = tmp_path / "run"
    for path, size in [
        (tmp_path / "checkpoints" / "job_1" / "3" / "step-00000010" / "rank-0.safetensors", 1000),
        (tmp_path / "checkpoints" / "job_2" / "0" / "step-00000010" / "rank-0.safetensors", 10_000),
        (log_of(tmp_path, "job_1"), 200),
        (run_directory / "session_2026" / "logs" / "raylet.out", 30),
    ]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)
    (run_directory / "gone").symlink_to(tmp_path / "nowhere")

    def counted(job_id: str, run_directory: Path) -> int:
        checkpoints = checkpoints_of(tmp_path / "checkpoints", job_id)
        return disk_bytes(tmp_path, job_id, checkpoints=checkpoints, run_directory=run_directory)

    assert counted("job_1", run_directory) == 1230
    assert counted("job_3", tmp_path / "none") == 0


def test_a_large_log_is_put_aside_once(tmp_path: Path) -> None:
    log = log_of(tmp_path, "job_1")
    begin_log(log)
    log.write_bytes(b"a" * LOG_BYTES)
    begin_log(log)
    assert log.exists()  # not larger than allowed
    for letter in (b"b", b"c"):
        log.write_bytes(letter * (LOG_BYTES + 1))
        begin_log(log)
        assert not log.exists()
    assert [path.name for path in log.parent.iterdir()] == ["job_1.log.1"]
    none = tmp_path / "none"
    assert disk_bytes(tmp_path, "job_1", checkpoints=none, run_directory=none) == LOG_BYTES + 1


@pytest.mark.processes
def test_logs_of_ended_processes_go_and_those_of_living_ones_and_of_the_cluster_stay(tmp_path: Path) -> None:
    ended = psutil.Popen([sys.executable, "-c", ""])
    ended.wait()
    logs = tmp_path / "session_2026-11-22_10-43-35_1_2" / "logs"
    logs.mkdir(parents=True)
    living = {f"worker-4fe-ffffffff-{os.getpid()}.out", f"python-core-worker-4fe_{os.getpid()}.log"}
    others = {"raylet.out", f"python-core-driver-01_{ended.pid}.log", "monitor.log"}
    gone = {f"worker-4fe-01000000-{ended.pid}.err", f"python-core-worker-4fe_{ended.pid}.log.1"}
    for name in living | others | gone:
        (logs / name).touch()
    remove_logs_of_ended_processes(tmp_path)
    assert {path.name for path in logs.iterdir()} == living | others


def test_a_directory_that_goes_while_files_are_counted_is_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "12").mkdir()
    (tmp_path / "kept").write_bytes(b"abc")
    scandir = os.scandir

    def gone_meanwhile(path: Any) -> Any:
        if Path(path).name == "12":
            Path(path).rmdir()
        return scandir(path)

    monkeypatch.setattr(os, "scandir", gone_meanwhile)
    assert bytes_in(tmp_path) == 3
    assert not (tmp_path / "12").exists()


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
