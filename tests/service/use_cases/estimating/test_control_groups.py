"""The machine as its control groups leave it: in a container, in a job of a batch system, in a unit of systemd."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from service.use_cases.estimating.control_groups import ControlGroups
from service.use_cases.estimating.machine_memory import memory_of_this_machine, usable_cpus

VERSION_1 = "4:memory:/job/step\n2:cpu,cpuacct:/job/step\n1:name=systemd:/user\n0::/user\n"
VERSION_2 = "0::/job/step\n"


@pytest.fixture(autouse=True)
def _many_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(64)))


def _groups(directory: Path, own: str, files: dict[str, str]) -> ControlGroups:
    (directory / "own").write_text(own)
    for name, content in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(content)
    return ControlGroups(root=directory, own=directory / "own")


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("0::/\n", {"cpu.max": "max 100000\n"}, 64),
        ("0::/\n", {"cpu.max": "200000 100000\n"}, 2),
        ("0::/\n", {"cpu.max": "150000 100000\n"}, 2),
        ("0::/\n", {"cpu.max": "50000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": ""}, 64),
        (VERSION_2, {"job/cpu.max": "300000 100000\n", "job/step/cpu.max": "max 100000\n"}, 3),
        (VERSION_2, {"other/cpu.max": "300000 100000\n"}, 64),
        (VERSION_1, {"cpu/job/cpu.cfs_quota_us": "250000\n", "cpu/job/cpu.cfs_period_us": "100000\n"}, 3),
        (VERSION_1, {"cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 1),  # seen from within
        (VERSION_1, {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 64),
    ],
)
def test_there_are_no_more_ranks_than_the_quota_has_cpus(
    tmp_path: Path, own: str, files: dict[str, str], expected: int
) -> None:
    assert usable_cpus(_groups(tmp_path, own, files)) == expected


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("0::/\n", {"memory.max": "1000\n"}, 1000),
        ("0::/\n", {"memory.max": "max\n"}, None),
        (VERSION_2, {"job/memory.max": "2000\n", "job/step/memory.max": "3000\n"}, 2000),
        (VERSION_1, {"memory/job/step/memory.limit_in_bytes": "1000\n"}, 1000),
        (VERSION_1, {"memory/memory.limit_in_bytes": "1000\n"}, 1000),  # of a container, which sees itself as the root
        (VERSION_1, {"memory/memory.limit_in_bytes": "9223372036854771712\n"}, None),
    ],
)
def test_the_memory_is_that_of_the_strictest_group(
    tmp_path: Path, own: str, files: dict[str, str], expected: int | None
) -> None:
    machine = memory_of_this_machine(ControlGroups(own=tmp_path / "missing"))
    assert memory_of_this_machine(_groups(tmp_path, own, files)) == (machine if expected is None else expected)


def test_without_control_groups_the_machine_counts(tmp_path: Path) -> None:
    assert usable_cpus(ControlGroups(own=tmp_path / "missing")) == 64
