"""The peak of a process's memory, by whatever the system tells of it."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import pytest

from trainers.memory import peak


@pytest.mark.parametrize(("platform", "unit_bytes"), [("linux", 1024), ("darwin", 1)])
def test_without_proc_the_peak_is_that_of_the_processs_life_in_bytes(
    platform: str, unit_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peak, "_STATUS", tmp_path / "status")
    monkeypatch.setattr(sys, "platform", platform)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    told = peak.peak_bytes("cpu")
    assert before * unit_bytes <= told <= resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit_bytes
