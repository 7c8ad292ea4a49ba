"""The command that trains trials with a program: what it takes for a measurement, and when it ends the program."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from typer.testing import CliRunner, Result

from service.cli.commands import app
from service.client import Client
from service.client.training.agent import Told, UnusableLine, measurement_of, train_with_command
from service.domain import FailureReason, TrialState
from service.store.repositories import ExternalRequestRepository
from service.store.session import Database
from tests.support.service.external import Run, served, state_of, submit_external, trials_of
from tests.support.service.live import running
from tests.support.waiting import wait_until

HEAD = """
import json, os, pathlib, signal, subprocess, sys, time
trial = os.environ["SHAMPOO_TRIAL"]
def tell(step, loss, **more):
    print(json.dumps({"step": step, "metrics": {"validation_loss": loss}, **more}), flush=True)
"""
SHORT_LEASE = {"external": {"lease_seconds": 12.0, "metrics": {"validation_loss": "minimize"}}}
"""Whose client says every four seconds that it is there."""


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_metric_that_is_not_finite_is_one_as_python_writes_it(value: float) -> None:
    measured = measurement_of(json.dumps({"step": 10, "metrics": {"validation_loss": value}}))
    assert measured is not None
    assert measured.metrics == {"validation_loss": None}


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ('{"step": 10, "metrics": {"loss": "high"}}', "metrics.loss: Input should be a valid number"),
        ('{"step": 0, "metrics": {"loss": 1.0}}', "step: Input should be greater than or equal to 1"),
        ('{"step": NaN, "metrics": {"loss": 1.0}}', "step: Input should be a finite number"),
        ('{"step": 1, "metrics": [1.0]}', "metrics: Input should be a valid dictionary"),
        (f'{{"step": 1, "metrics": {{"loss": 1{"0" * 400}}}}}', "metrics.loss: Input should be a valid number"),
    ],
)
def test_a_measurement_that_cannot_be_used_says_why(line: str, fault: str) -> None:
    with pytest.raises(UnusableLine, match=fault):
        measurement_of(line)


@pytest.mark.parametrize(
    "line", ["", "step 10", "{'step': 10}", '{"step": 10, "loss": 1}', '{"step": 1, "metrics": ' + "[" * 10_000]
)
def test_another_line_is_text(line: str) -> None:
    assert measurement_of(line) is None


def reports_waiting(database: Database, job: str) -> bool:
    with database.reading() as session:
        return ExternalRequestRepository(session).num_waiting(job) > 0


def agent(url: str, job: str, program: str, *options: str) -> Result:
    """The command itself, as far as it goes without a signal."""
    return CliRunner().invoke(app, ["agent", job, "--url", url, *options, "--", sys.executable, "-c", HEAD + program])


@contextmanager
def beside(work: Callable[[], Any]) -> Iterator[Future[Any]]:
    """Runs `work` in a thread meanwhile."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        yield pool.submit(work)


@dataclass(slots=True)
class MidTrial:
    """An agent in the middle of a trial, and a job whose run has gone since it handed that out."""

    client: Client
    job: str
    run: Run
    agent: Future[Any]


@contextmanager
def in_mid_trial(
    database: Database, tmp_path: Path, work: Callable[[str, str], Any], **fields: Any
) -> Iterator[MidTrial]:
    """Gives what `work` makes of a service's address and a job, at the moment at which its program calls `begin`."""
    job = submit_external(database, **{**SHORT_LEASE, **fields})
    with running(database) as url, Client(url) as client, beside(lambda: work(url, job)) as future:
        with served(database) as run:
            wait_until((tmp_path / "begun").exists, "the command")
        try:
            yield MidTrial(client, job, run, future)
        finally:
            if not state_of(database, job).is_final:
                client.cancel(job)


def beginning(tmp_path: Path) -> str:
    """The head of a program that says how far it is, and waits until it may go on."""
    return f"""
def begin():
    pathlib.Path({str(tmp_path / "begun")!r}).touch()
def wait():
    while not pathlib.Path({str(tmp_path / "go")!r}).exists():
        time.sleep(0.02)
def end(*_):
    pathlib.Path({str(tmp_path / "saved")!r}).touch()
    sys.exit()
signal.signal(signal.SIGTERM, end)
"""


@pytest.mark.processes
def test_a_trial_that_diverged_is_no_error(sqlite_database: Database) -> None:
    job = submit_external(sqlite_database, budget={"num_trials": 5})
    program = """
def measure(step, perplexity):
    print(json.dumps({"step": step, "metrics": {"validation_loss": 1.0, "perplexity": perplexity}}), flush=True)
if trial == "0":
    tell(5, float("nan"))
    time.sleep(1000)  # until it is told to end, in that very step
measure(5, float("nan"))
if trial == "4":
    measure(10, float("inf"))
elif trial == "3":
    measure(6, 0.5)
sys.exit(int(trial))
"""
    with running(sqlite_database) as url, served(sqlite_database):
        result = agent(url, job, program)
    assert result.exit_code == 0, result.output
    *diverged, error, completed = trials_of(sqlite_database, job)
    assert [(trial.state, trial.reason) for trial in diverged] == [(TrialState.FAILED, FailureReason.DIVERGED)] * 3
    assert diverged[0].detail == "diverged at step 5: validation_loss is not finite"
    assert diverged[1].detail == "perplexity not finite at step 5; exit status 1"
    assert (error.state, error.reason) == (TrialState.FAILED, FailureReason.ERROR)  # it was finite again
    assert (completed.state, completed.value) == (TrialState.COMPLETED, 1.0)


@pytest.mark.processes
def test_a_measurement_with_further_keys_counts_and_one_that_is_none_says_why(sqlite_database: Database) -> None:
    job = submit_external(sqlite_database, budget={"num_trials": 3})
    program = """
if trial == "0":
    tell(10, 0.5, lr=0.1, split="validation")
elif trial == "1":
    tell(5, "low")
    tell(10, "lower")
else:
    print(json.dumps({"step": 10, "metrics": {"accuracy": 0.5}}))
"""
    with running(sqlite_database) as url, served(sqlite_database):
        result = agent(url, job, program)
    assert result.exit_code == 0, result.output
    whole, text, other = trials_of(sqlite_database, job)
    assert (whole.state, whole.value) == (TrialState.COMPLETED, 0.5)
    faults = result.stderr.splitlines()
    assert len(faults) == 2, faults  # once for each reason
    assert faults[0].startswith("trial 1: this measurement is left out: metrics.validation_loss: Input should be")
    assert "must have the job's objective, 'validation_loss'" in faults[1]
    assert "a measurement was left out: metrics.validation_loss: Input should be" in (text.detail or "")
    assert "must have the job's objective" in (other.detail or "")
    assert '"validation_loss": "lower"' in result.stdout


@pytest.mark.processes
def test_a_last_step_that_is_decided_later_completes_the_trial(sqlite_database: Database, tmp_path: Path) -> None:
    program = beginning(tmp_path) + "begin()\nwait()\ntell(10, 0.5)\ntell(10, 0.4)"
    with in_mid_trial(
        sqlite_database, tmp_path, lambda url, job: agent(url, job, program), budget={"num_trials": 2}
    ) as mid:
        mid.run.end()
        (tmp_path / "go").touch()
        wait_until(lambda: reports_waiting(sqlite_database, mid.job), "a report that nobody answers yet")
        with served(sqlite_database):
            result = mid.agent.result()
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [f"trial {number}: stop: the trial is completed" for number in (0, 1)]
    states = [(trial.state, trial.value, trial.losses) for trial in trials_of(sqlite_database, mid.job)]
    assert states == [(TrialState.COMPLETED, 0.5, 0)] * 2


@pytest.mark.processes
@pytest.mark.parametrize("program", ["time.sleep(1000)", "wait()\ntell(5, 0.5)\ntime.sleep(1000)"])
def test_a_command_is_told_to_end_when_its_job_was_cancelled(
    sqlite_database: Database, tmp_path: Path, program: str
) -> None:
    whole = f"{beginning(tmp_path)}begin()\n{program}"
    with in_mid_trial(sqlite_database, tmp_path, lambda url, job: agent(url, job, whole)) as mid:
        mid.client.cancel(mid.job)
        (tmp_path / "go").touch()
        result = mid.agent.result()
    assert (result.exit_code, result.stdout) == (0, "trial 0: stop: the job has ended: cancelled\n")
    assert (tmp_path / "saved").exists()


@pytest.mark.processes
def test_a_command_is_told_to_end_when_its_job_is_paused_and_its_trial_is_given_back(
    sqlite_database: Database, tmp_path: Path
) -> None:
    program = f"{beginning(tmp_path)}begin()\ntime.sleep(1000)"
    with in_mid_trial(sqlite_database, tmp_path, lambda url, job: agent(url, job, program, "--max-trials", "1")) as mid:
        mid.client.pause(mid.job)
        result = mid.agent.result()
        assert result.exit_code == 0
        assert result.stdout.startswith("trial 0: pause: ")
        assert (tmp_path / "saved").exists()
        mid.run.end()
        mid.client.resume(mid.job)
        with served(sqlite_database):
            wait_until(lambda: trials_of(sqlite_database, mid.job)[0].state is TrialState.QUEUED, "its return")
        assert trials_of(sqlite_database, mid.job)[0].losses == 0


@pytest.mark.processes
def test_a_command_that_does_not_end_when_it_is_told_is_killed(sqlite_database: Database, tmp_path: Path) -> None:
    program = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nbegin()\nwhile True:\n    print('x' * 1000)"
    command = [sys.executable, "-c", HEAD + beginning(tmp_path) + program]

    def train(url: str, job: str) -> Told:
        with Client(url) as client:
            *_, last = train_with_command(client, job, command, ending_seconds=0.5)
            return last

    with in_mid_trial(sqlite_database, tmp_path, train) as mid:
        mid.client.cancel(mid.job)
        assert mid.agent.result() == Told("trial 0: stop: the job has ended: cancelled")


@pytest.mark.processes
def test_a_process_that_a_command_leaves_behind_is_not_waited_for(sqlite_database: Database, tmp_path: Path) -> None:
    job = submit_external(sqlite_database, budget={"num_trials": 1})
    left = tmp_path / "left"
    program = f"""
pathlib.Path({str(left)!r}).write_text(str(subprocess.Popen(["sleep", "1000"]).pid))
tell(10, 0.5)
print("done" * 10_000)
"""
    try:
        with running(sqlite_database) as url, served(sqlite_database):
            result = agent(url, job, program)
    finally:
        psutil.Process(int(left.read_text())).kill()
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == ["done" * 10_000, "trial 0: stop: the trial is completed"]
