"""Figures that hang, die or raise take nothing with them, and the file has what was measured at every moment."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.gpu import failing_figures
from tests.gpu.results import markdown

ROOT = Path(__file__).parents[2]


@pytest.mark.processes
def test_whatever_happens_to_a_figure_the_others_are_taken_and_written(tmp_path: Path) -> None:
    path, pids = tmp_path / "figures.json", tmp_path / "pids"
    shown = subprocess.run(
        [sys.executable, "-m", failing_figures.__name__, path, pids],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert shown.returncode == 0, shown.stderr
    found = json.loads(path.read_text())
    problems = found["problems"]
    assert list(problems) == [f"bad: {name}" for name in ("hangs", "dies", "raises", "misses", "wrong")]
    assert problems["bad: hangs"].startswith("hung: there was no value after")
    assert problems["bad: dies"] == "its process died: exit status 9"
    assert problems["bad: raises"].endswith("ValueError: of a figure\n")
    assert problems["bad: misses"] == "needs the package a_package_that_is_nowhere, which is not installed here"
    assert problems["bad: wrong"] == "deviates by nan, limit 1e-05"
    values = {name: figure["values"] for name, figure in found["figures"].items() if figure["problem"] is None}
    assert values == {f"good: {name}": {"deviation": 1e-7, "limit": 1e-5} for name in ("before", "alone", "after")}
    assert found["environment"] == {"device": "none"}
    assert found["is_complete"]
    # After each figure the file was whole and had all that were taken.
    assert shown.stdout.split() == [str(number) for number in range(1, 9)]

    late = json.loads((tmp_path / "late.json").read_text())
    assert late["problems"] == late["figures"] == {}
    assert late["left_out"].keys() == {"good: begun", "good: not begun"}
    assert re.fullmatch(r"the time was up \d+ s after it was begun", late["left_out"]["good: begun"])
    assert late["left_out"]["good: not begun"] == "the time was up"
    started = [int(pid) for pid in pids.read_text().split()]
    assert len(started) >= 2  # the late one may not have come as far
    assert not any(psutil.pid_exists(pid) for pid in started)


def test_a_table_can_be_pasted() -> None:
    assert (
        markdown(("a", "b"), [["x", 1234.5], ["y", 0.5]]) == "| a | b |\n| --- | ---: |\n| x | 1,234 |\n| y | 0.500 |"
    )
