"""The Python client of trials that others train, and the command that runs a program for each."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest
from sqlalchemy import select
from typer.testing import CliRunner

from service.cli.commands import app
from service.client import (
    ApiError,
    AsyncClient,
    Client,
    ExternalTrial,
    ServiceUnreachable,
    external_trials,
    suggest,
)
from service.client.training import async_client
from service.client.training.suggested import Patience
from service.domain import FailureReason, JobState, TrialState
from service.specification.external.messages import ExternalDecision, RequestKind
from service.store.models import ExternalRequest
from service.store.repositories import ExternalRequestRepository
from service.store.session import Database
from tests.support import event_loop
from tests.support.readmes import ROOT
from tests.support.service.external import served, state_of, submit_external, trials_of
from tests.support.service.live import running
from tests.support.waiting import PATIENCE_SECONDS, wait_until

STOP = ExternalDecision.STOP

PROGRAM = """
import json, os, pathlib, sys
config = json.loads(pathlib.Path(os.environ["SHAMPOO_TRIAL_CONFIG"]).read_text())
print("lr is", config["optimizer"]["arguments"]["lr"], flush=True)
if os.environ["SHAMPOO_TRIAL"] == "1":
    sys.exit(3)
for step in (5, config["num_steps"]):
    print(json.dumps({"step": step, "metrics": {"validation_loss": 1 / step}}), flush=True)
"""


def test_a_command_that_is_none_is_told_before_a_trial_is_asked_for() -> None:
    result = CliRunner().invoke(app, ["agent", "job", "--url", "http://127.0.0.1:9", "--", "no-such-program", "x"])
    assert result.exit_code == 1
    assert "no-such-program: there is no such command" in result.output


def test_an_outage_is_told_once_until_the_service_has_answered(caplog: pytest.LogCaptureFixture) -> None:
    patience = Patience(60.0)
    for reason in ("away", "away", "busy"):
        patience.bear(ServiceUnreachable("http://here", reason))
    assert [f"({reason})" in caplog.records[at].getMessage() for at, reason in enumerate(("away", "busy"))] == [
        True,
        True,
    ]
    assert len(caplog.records) == 2
    patience.begin_anew()
    patience.bear(ServiceUnreachable("http://here", "busy"))
    assert len(caplog.records) == 3


@pytest.mark.slow
def test_two_clients_at_once_share_a_job(sqlite_database: Database) -> None:
    database = sqlite_database
    job = submit_external(database, budget={"num_trials": 6})
    trained: Counter[str] = Counter()

    def train(url: str, name: str) -> None:
        with Client(url) as client:
            for trial in external_trials(client, job, name=name):
                with trial:
                    trained[name] += 1
                    assert not trial.should_stop()
                    for step in range(trial.begins_at_step + 1, trial.num_steps + 1):
                        if step % 5 == 0 and not trial.report(step, {"validation_loss": 1 / step}):
                            break

    with running(database) as url, served(database):
        threads = [Thread(target=train, args=(url, name)) for name in ("node1", "node2")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert trained.total() == 6
    assert len(trained) == 2
    assert [trial.state for trial in trials_of(database, job)] == [TrialState.COMPLETED] * 6
    assert [[row.step for row in trial.measurements] for trial in trials_of(database, job)] == [[5, 10]] * 6
    assert state_of(database, job) is JobState.SUCCEEDED


@pytest.mark.slow
def test_trials_are_trained_by_a_loop_that_awaits(sqlite_database: Database) -> None:
    job = submit_external(sqlite_database, budget={"num_trials": 4})

    async def train(client: AsyncClient, name: str) -> list[int]:
        numbers = []
        async for trial in async_client.external_trials(client, job, name=name):
            with suppress(ZeroDivisionError):
                async with trial:
                    numbers.append(trial.number)
                    assert await trial.keep()
                    assert not await trial.should_stop()
                    if trial.number == 1:
                        raise ZeroDivisionError("0")
                    for step in range(trial.begins_at_step + 5, trial.num_steps + 1, 5):
                        await trial.report(step, {"validation_loss": 1 / step})
        return numbers

    async def at_once(url: str) -> tuple[list[int], list[int]]:
        async with AsyncClient(url) as client:
            return await asyncio.gather(train(client, "one"), train(client, "two"))

    with running(sqlite_database) as url, served(sqlite_database):
        one, two = event_loop.run(at_once(url))
    assert sorted(one + two) == [0, 1, 2, 3]
    states = [(trial.state, trial.detail) for trial in trials_of(sqlite_database, job)]
    assert states.pop(1) == (TrialState.FAILED, "ZeroDivisionError: 0")
    assert states == [(TrialState.COMPLETED, None)] * 3
    assert state_of(sqlite_database, job) is JobState.SUCCEEDED


@pytest.mark.slow
def test_a_last_step_that_is_decided_later_is_waited_for(sqlite_database: Database) -> None:
    job = submit_external(sqlite_database, budget={"num_trials": 2})

    def train(trial: ExternalTrial) -> bool:
        with trial:
            return trial.report(np.int64(10), {"validation_loss": np.float64(0.5)}, epoch=float32)

    async def train_awaiting(url: str) -> bool:
        async with AsyncClient(url) as client:
            trial = await async_client.suggest(client, job)
            assert trial is not None
            suggested.set()
            await asyncio.to_thread(run_has_gone.wait)
            async with trial:
                return await trial.report(np.int64(10), {"validation_loss": 0.5}) or trial.decision is not STOP

    float32: Any = np.float32(1.0)

    def waits() -> bool:
        with sqlite_database.reading() as session:
            return ExternalRequestRepository(session).num_waiting(job) > 0

    suggested, run_has_gone = Event(), Event()
    with running(sqlite_database) as url, Client(url) as client, ThreadPoolExecutor() as pool:
        with served(sqlite_database) as run:
            trial = suggest(client, job)
            assert trial is not None
            awaiting = pool.submit(event_loop.run, train_awaiting(url))
            assert suggested.wait(PATIENCE_SECONDS)
        run.end()
        run_has_gone.set()
        goes_on = pool.submit(train, trial)
        wait_until(waits, "a report that nobody answers yet")
        with served(sqlite_database):
            assert not goes_on.result()
            assert not awaiting.result()
    assert (trial.decision, trial.why) == (STOP, "the trial is completed")
    assert [(ended.state, ended.losses) for ended in trials_of(sqlite_database, job)] == [(TrialState.COMPLETED, 0)] * 2


@pytest.mark.slow
def test_a_trial_of_a_job_that_was_cancelled_stops(sqlite_database: Database) -> None:
    job = submit_external(sqlite_database)
    with running(sqlite_database) as url, Client(url) as client:
        with served(sqlite_database):
            trials = [trial for trial in (suggest(client, job) for _ in range(4)) if trial is not None]
        client.cancel(job)
        reporting, keeping, failing, left = trials
        with reporting:
            assert not reporting.report(5, {"validation_loss": 0.5})
            assert not reporting.report(10, {"validation_loss": 0.5})  # by one that does not listen
        assert not keeping.keep()
        with pytest.raises(ZeroDivisionError), failing:
            raise ZeroDivisionError
        with left:
            pass
        assert {(trial.decision, trial.why) for trial in trials} == {(STOP, "the job has ended: cancelled")}
        assert suggest(client, job) is None


@pytest.mark.slow
def test_a_trial_whose_client_hears_of_a_pause_is_given_back(sqlite_database: Database) -> None:
    job = submit_external(sqlite_database)
    with running(sqlite_database) as url, Client(url) as client:
        with served(sqlite_database) as run:
            trial = suggest(client, job)
            assert trial is not None
        client.pause(job)
        with trial:
            assert trial.should_stop()
        assert trial.decision is ExternalDecision.PAUSE
        run.end()
        client.resume(job)
        with served(sqlite_database):
            wait_until(lambda: trials_of(sqlite_database, job)[0].state is TrialState.QUEUED, "its return")
    assert trials_of(sqlite_database, job)[0].losses == 0  # its lease has not just run out


@pytest.mark.slow
def test_what_a_client_does_with_a_trial_it_cannot_train(sqlite_database: Database) -> None:
    job = submit_external(sqlite_database)
    with running(sqlite_database) as url, served(sqlite_database), Client(url) as client:

        def train(error: BaseException | None) -> int:
            trial = suggest(client, job)
            assert trial is not None
            with trial:
                trial.report(1, {"validation_loss": 1.0})
                trial.keep()
                if error is not None:
                    raise error
            return trial.number

        with pytest.raises(ZeroDivisionError):
            train(ZeroDivisionError("0"))
        with pytest.raises(KeyboardInterrupt):
            train(KeyboardInterrupt())
        assert train(None) == 1  # which the one before has released
        trial = suggest(client, job)
        assert trial is not None
        with pytest.raises(ApiError, match="up to step 1, and is complete after 10"):
            trial.complete()
        trial.fail("diverged", "NaN")
    failed, released, again = trials_of(sqlite_database, job)[:3]
    assert (failed.state, failed.reason, failed.detail) == (
        TrialState.FAILED,
        FailureReason.ERROR,
        "ZeroDivisionError: 0",
    )
    assert (released.state, released.losses) == (TrialState.FAILED, 1)  # given back twice at the same step
    assert again.number == 2


def test_a_client_that_measures_no_number_is_told_to_stop(sqlite_database: Database) -> None:
    job = submit_external(sqlite_database)
    with running(sqlite_database) as url, served(sqlite_database), Client(url) as client:
        trial = suggest(client, job)
        assert trial is not None
        with trial:
            assert trial.report(1, {"validation_loss": 1.0})
            assert not trial.report(2, {"validation_loss": float("nan")})
        assert trial.why == "diverged at step 2: validation_loss is not finite"
    diverged = trials_of(sqlite_database, job)[0]
    assert (diverged.state, diverged.reason) == (TrialState.FAILED, FailureReason.DIVERGED)


@pytest.mark.processes
def test_a_task_of_a_slurm_array_trains_trials_with_a_program(sqlite_database: Database, tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    job = submit_external(sqlite_database, budget={"num_trials": 3})
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with running(sqlite_database) as url, served(sqlite_database):
        environment = {**os.environ, "PATH": path, "SHAMPOO_TUNER_URL": url, "SHAMPOO_JOB": job}
        task = subprocess.run(
            ["bash", ROOT / "docker/slurm-array.sbatch", sys.executable, program],
            env={**environment, "SLURM_ARRAY_JOB_ID": "4711", "SLURM_ARRAY_TASK_ID": "3"},
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
    assert task.returncode == 0, task.stderr
    told = [re.split(":| is ", line)[0] for line in task.stdout.splitlines()]
    assert told == ["lr", "trial 0", "lr", "trial 1", "lr", "trial 2"]
    trials = trials_of(sqlite_database, job)
    assert [trial.state for trial in trials] == [TrialState.COMPLETED, TrialState.FAILED, TrialState.COMPLETED]
    assert (trials[1].detail or "").startswith("exit status 3; its last line: lr is")
    with sqlite_database.reading() as session:
        asked = session.scalars(select(ExternalRequest).where(ExternalRequest.kind == RequestKind.SUGGEST)).all()
    assert all(str(request.stored_content["client"]).endswith("/4711_3") for request in asked)
