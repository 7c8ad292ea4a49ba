"""The memory of a cluster's GPUs: which machines are asked, and how they find out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from service.scheduler.cluster.gpu_memory import MAX_MACHINES, gpu_bytes_here, machines_to_ask


def test_one_machine_of_each_kind_is_asked() -> None:
    machines = [
        ("head", {"CPU": 4.0}),
        ("a", {"GPU": 8.0, "accelerator_type:H100": 1.0}),
        ("b", {"GPU": 8.0, "accelerator_type:H100": 1.0}),
        ("c", {"GPU": 1.0, "accelerator_type:L4": 1.0}),
        *((f"nameless-{index}", {"GPU": 1.0}) for index in range(MAX_MACHINES + 5)),
        ("without", {"GPU": 0.0, "accelerator_type:L40": 1.0}),
    ]
    asked = machines_to_ask(machines)
    assert asked[:2] == ["a", "c"]
    assert asked[2:] == [f"nameless-{index}" for index in range(MAX_MACHINES)]
    assert machines_to_ask([("head", {"CPU": 4.0})]) == []


@pytest.mark.processes
@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo 24564; echo 81559", 81559 * 2**20),
        ("echo '[N/A]'", None),
        ("exit 9", None),
        (None, None),
    ],
)
def test_the_driver_tells_the_largest_or_nothing(
    script: str | None, expected: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path) if script is None else f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    if script is not None:
        tool = tmp_path / "nvidia-smi"
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)
    assert gpu_bytes_here() == expected
