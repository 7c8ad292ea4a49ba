"""The agent in a terminal: its command ends with it, though it is in a process group of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from service.domain import TrialState
from service.store.session import Database
from tests.support.service.external import served, submit_external, trials_of
from tests.support.service.live import running
from tests.support.waiting import PATIENCE_SECONDS, started, wait_until

IN_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)
"""Runs a command whose standard input is the terminal that it belongs to, as a login does."""
PROGRAM = """
import pathlib, signal, sys, time
began, saved = map(pathlib.Path, sys.argv[1:])
def end(*_):
    time.sleep(0.5)
    saved.touch()
    sys.exit()
signal.signal(signal.SIGTERM, end)
began.touch()
time.sleep(1000)
"""


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_command_ends_with_ctrl_c_and_with_the_terminal(
    sqlite_database: Database, tmp_path: Path, number: signal.Signals
) -> None:
    job = submit_external(sqlite_database)
    began, saved = tmp_path / "began", tmp_path / "saved"
    ours, theirs = os.openpty()
    with running(sqlite_database) as url, served(sqlite_database):
        command = ["agent", job, "--url", url, "--", sys.executable, "-c", PROGRAM, str(began), str(saved)]
        with started(
            [sys.executable, "-c", IN_TERMINAL, sys.executable, "-m", "service", *command],
            stdin=theirs,
            stdout=theirs,
            stderr=subprocess.PIPE,
            start_new_session=True,
        ) as agent:
            os.close(theirs)
            wait_until(began.exists, "the command", more=lambda: f"exit status {agent.poll()}")
            if number is signal.SIGINT:
                os.write(ours, b"\x03")
            else:  # as a shell does, too, that ends with its terminal
                os.close(ours)
                agent.send_signal(signal.SIGHUP)
            _, told = agent.communicate(timeout=PATIENCE_SECONDS)
        wait_until(lambda: trials_of(sqlite_database, job)[0].state is TrialState.QUEUED, "the trial's return")
    if number is signal.SIGINT:
        os.close(ours)
    assert saved.exists()
    assert agent.returncode == 128 + number, told
