"""The agent and the signals that tell it to end, as a terminal sends them: its command ends with it, though it is in a
process group of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from service.client import Client
from service.client.training import agent
from service.client.training.agent import Terminated
from service.client.training.command import RunningCommand
from service.domain import TrialState
from service.store.session import Database
from tests.support.service.external import served, submit_external, trials_of
from tests.support.service.live import running
from tests.support.waiting import PATIENCE_SECONDS, started, wait_until

IN_TERMINAL = """
import fcntl, os, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
for number in (signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Runs a command whose standard input is the terminal that it belongs to, as a login does. The tests themselves may run
in the background, or with `nohup`, where these signals are ignored."""
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
        ) as process:
            os.close(theirs)
            wait_until(began.exists, "the command", more=lambda: f"exit status {process.poll()}")
            if number is signal.SIGINT:
                os.write(ours, b"\x03")
            else:  # as a shell does, too, that ends with its terminal
                os.close(ours)
                process.send_signal(signal.SIGHUP)
            _, told = process.communicate(timeout=PATIENCE_SECONDS)
        wait_until(lambda: trials_of(sqlite_database, job)[0].state is TrialState.QUEUED, "the trial's return")
    if number is signal.SIGINT:
        os.close(ours)
    assert saved.exists()
    assert process.returncode == 128 + number, told
    assert told.strip().endswith("told to end: the trial is released")


DEFAULTS: Mapping[signal.Signals, Callable[[int, FrameType | None], Any] | signal.Handlers] = {
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
    signal.SIGINT: signal.default_int_handler,
}


def with_defaults(request: pytest.FixtureRequest, number: signal.Signals) -> None:
    """Has a signal do until the test ends what it does in a process that was started in the foreground."""
    before = signal.signal(number, DEFAULTS[number])
    request.addfinalizer(lambda: signal.signal(number, before))


@pytest.mark.processes
@pytest.mark.parametrize(
    ("number", "raised"),
    [(signal.SIGTERM, Terminated), (signal.SIGHUP, Terminated), (signal.SIGINT, KeyboardInterrupt)],
)
def test_a_command_that_was_just_started_is_ended_too(
    sqlite_database: Database,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    number: signal.Signals,
    raised: type[BaseException],
) -> None:
    commands: list[RunningCommand] = []
    with_defaults(request, number)

    def started_and_told(command: Sequence[str], environment: Mapping[str, str]) -> RunningCommand:
        commands.append(RunningCommand(command, environment))
        signal.raise_signal(number)
        return commands[0]

    monkeypatch.setattr(agent, "RunningCommand", started_and_told)
    job = submit_external(sqlite_database)
    with running(sqlite_database) as url, served(sqlite_database), Client(url) as client:
        with pytest.raises(raised):
            list(agent.train_with_command(client, job, ["sleep", "1000"], ending_seconds=PATIENCE_SECONDS))
        assert commands[0].exit_status == -signal.SIGTERM
    assert signal.getsignal(number) == DEFAULTS[number]
