"""Rules that hold for all tests, however they are run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[1]
LEAKS = """
class Cycle:
    def __init__(self, held):
        self.own, self.held = self, held

def test_that_fails_and_leaves_a_file_open():
    file = open(__file__)
    assert file.closed

def test_that_begins_after_it():
    pass

def test_that_leaves_a_file_to_the_garbage_collector():
    Cycle(open(__file__))

def test_that_is_the_last():
    pass
"""
INTERRUPTED = """
import signal, subprocess, sys
import pytest

@pytest.mark.processes
def test_that_interrupts_what_it_starts():
    code = "print(flush=True); import time; time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert b"KeyboardInterrupt" in process.stderr.read()
"""


def test_leaks_are_blamed_on_their_tests_and_what_runs_in_the_background_is_interrupted(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = processes")
    (tmp_path / "test_leaks.py").write_text(LEAKS)
    (tmp_path / "test_others.py").write_text(INTERRUPTED)
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "-W", "error", "-rA"]
    ran = subprocess.run(
        ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *command],  # as a script starts what runs in the background
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    found = {line.split(" - ")[0] for line in ran.stdout.splitlines() if re.match("(PASSED|FAILED|ERROR) ", line)}
    leaks = "test_leaks.py::test_that"
    assert found == {
        f"FAILED {leaks}_fails_and_leaves_a_file_open",
        f"ERROR {leaks}_fails_and_leaves_a_file_open",
        f"PASSED {leaks}_begins_after_it",
        f"PASSED {leaks}_leaves_a_file_to_the_garbage_collector",
        f"PASSED {leaks}_is_the_last",
        f"ERROR {leaks}_is_the_last",
        "PASSED test_others.py::test_that_interrupts_what_it_starts",
    }, ran.stdout
