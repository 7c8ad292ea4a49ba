"""A command as a process: how it is ended, with what it has started."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import psutil
import pytest

from service.client.training.command import RunningCommand
from tests.support.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.processes

PROGRAM = """
import os, pathlib, signal, sys, time
def end(*_):
    time.sleep(0.5)
    pathlib.Path(sys.argv[2]).touch()
    sys.exit()
signal.signal(signal.SIGTERM, signal.SIG_IGN if sys.argv[2] == "never" else end)
began = pathlib.Path(sys.argv[1])
began.with_suffix(".new").write_text(str(os.getpid()))
began.with_suffix(".new").rename(began)
time.sleep(1000)
"""
"""Says its number and that it has begun, and takes a while to save when it is told to end, or never does."""


def started(began: Path, saved: Path | str, *, by: str) -> tuple[RunningCommand, psutil.Process]:
    """A shell's command, and the program that the shell runs."""
    environment = {**os.environ, "PYTHON": sys.executable, "PROGRAM": PROGRAM, "BEGAN": str(began), "SAVED": str(saved)}
    running = RunningCommand(["sh", "-c", by], environment)
    wait_until(began.exists, "the program")
    return running, psutil.Process(int(began.read_text()))


WAITS = '"$PYTHON" -c "$PROGRAM" "$BEGAN" "$SAVED"; true'
PASSES_ON = '"$PYTHON" -c "$PROGRAM" "$BEGAN" "$SAVED" & trap "kill $!; wait $!" TERM; wait $!'


@pytest.mark.parametrize("by", [WAITS, PASSES_ON])
def test_what_a_shell_waits_for_is_told_to_end_and_has_time_to_save(tmp_path: Path, by: str) -> None:
    running, program = started(tmp_path / "began", tmp_path / "saved", by=by)
    running.end(PATIENCE_SECONDS)
    assert (tmp_path / "saved").exists()
    assert not program.is_running()


def test_what_a_shell_waits_for_is_killed_if_it_does_not_end(tmp_path: Path) -> None:
    running, program = started(tmp_path / "began", "never", by=WAITS)
    running.end(0.5)
    wait_until(lambda: not program.is_running() or program.status() == psutil.STATUS_ZOMBIE, "its end")


def test_a_program_is_not_told_to_end_before_the_one_that_it_helps(tmp_path: Path) -> None:
    helped = 'trap "kill -0 $! && sleep 0.5 && kill -0 $! && touch \\"$SAVED.whole\\"; exit" TERM; '
    running, _ = started(
        tmp_path / "began",
        tmp_path / "saved",
        by='"$PYTHON" -c "$PROGRAM" "$BEGAN" "$SAVED" & ' + helped + "while true; do sleep 0.1; done",
    )
    running.end(PATIENCE_SECONDS)
    assert (tmp_path / "saved.whole").exists()
    assert (tmp_path / "saved").exists()


def test_a_command_has_no_standard_input() -> None:
    running = RunningCommand(["sh", "-c", "read line || echo none"], os.environ)
    assert list(running.lines(lambda: True)) == ["none"]
    running.end(0.0)
