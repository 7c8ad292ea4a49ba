"""Watching a job from the command line: what is printed while it goes on, and how the command ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from service.api import examples
from service.api.schemas.jobs import JobRead
from service.cli import commands
from service.cli.reading import watching
from service.cli.terminal import progress_line
from service.domain import JobState, Phase
from service.store.repositories import JobRepository
from service.store.session import Database
from service.use_cases.run import finish_job
from service.use_cases.waiting import FIRST_MEASUREMENT
from tests.support.service.commands import run
from tests.support.service.live import finished_job, running
from tests.support.service.scenarios import (
    NOW,
    add_worker,
    begin_trial,
    claim,
    claimed_job,
    run_trial,
    submit,
)
from tests.support.waiting import PATIENCE_SECONDS, started


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Has the given functions called, one after the other, while a watch waits for its next looks."""

    def happen(*events: Callable[[], object]) -> None:
        left = iter(events)
        monkeypatch.setattr(watching, "time", SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: next(left)()))

    return happen


@pytest.mark.usefixtures("url")
def test_watch_prints_what_changes_and_succeeds_with_the_job(
    sqlite_database: Database, meanwhile: Callable[..., None]
) -> None:
    submit(sqlite_database)
    # The service goes by the clock, for which the scenario's time is long ago.
    lease = claim(sqlite_database, add_worker(sqlite_database), lease_seconds=1e9)
    assert lease is not None

    def work() -> None:
        run_trial(sqlite_database, lease, 0, 0.5)
        run_trial(sqlite_database, lease, 1, 0.4, Phase.BASELINE)
        begin_trial(sqlite_database, lease, 2)

    def finish() -> None:
        with sqlite_database.writing() as session:
            finish_job(session, lease, failure=None, now=NOW)

    meanwhile(work, finish)
    result = run("watch", lease.job_id)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].startswith(f"running · 0/4 trials (none started) · {FIRST_MEASUREMENT} (waiting since ")
    one = "search value, one seed, trial"
    bests = f"best validation_loss 0.5000 ({one} 0) · baseline 0.4000 ({one} 1)"
    assert any(bests in line for line in lines)
    assert any(line.startswith("succeeded · 3/4") for line in lines)


@pytest.mark.slow
def test_watch_tells_of_a_service_that_is_away_and_goes_on_when_it_is_back(
    sqlite_database: Database, meanwhile: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = claimed_job(sqlite_database)
    run_trial(sqlite_database, lease, 0, 0.5)
    with ExitStack() as first, ExitStack() as second:
        url = first.enter_context(running(sqlite_database))
        port = int(url.rpartition(":")[2])
        monkeypatch.setenv("SHAMPOO_TUNER_URL", url)

        def come_back() -> None:
            second.enter_context(running(sqlite_database, port=port))

        def finish() -> None:
            begin_trial(sqlite_database, lease, 1)  # and is cut off
            with sqlite_database.writing() as session:
                finish_job(session, lease, failure=None, now=NOW)

        meanwhile(first.close, come_back, finish)
        result = run("watch", lease.job_id)
    assert result.exit_code == 0, result.output
    (begun, ended, *_), (away, answers, *_) = result.stdout.splitlines(), result.stderr.splitlines()
    assert begun.startswith("running · 1/4 trials (1 completed) · 40/160 steps · best")
    assert away.startswith("the service does not answer, trying again for 10 min 00 s: no service answers at http")
    assert answers == "the service answers again"
    assert ended.startswith("succeeded · 2/4 trials (1 completed, 1 cancelled) · 40/40 steps")


def test_watch_waits_for_a_service_that_is_away_at_its_start(
    sqlite_database: Database, meanwhile: Callable[..., None]
) -> None:
    job_id = finished_job(sqlite_database)
    with ExitStack() as stack:
        with running(sqlite_database) as url:
            port = int(url.rpartition(":")[2])
        meanwhile(lambda: stack.enter_context(running(sqlite_database, port=port)))
        result = run("watch", job_id, "--url", url)
    assert result.exit_code == 0, result.output
    away, answers, *_ = result.stderr.splitlines()
    assert away.startswith(f"the service does not answer, trying again for 10 min 00 s: no service answers at {url}")
    assert answers == "the service answers again"
    assert result.stdout.startswith("succeeded · ")


def test_watch_without_a_service_exits_with_three(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "WATCH_OUTAGE_SECONDS", 0.6)
    result = run("watch", "job_1", "--url", "http://127.0.0.1:1")
    assert result.exit_code == 3
    assert "no service answers at http://127.0.0.1:1" in result.stderr
    assert "job job_1 may go on" in result.stderr


def test_steps_a_second_are_counted_over_the_last_half_minute() -> None:
    job = JobRead.model_validate(examples.JOB)

    def at(num_steps: int) -> JobRead:
        return job.model_copy(update={"progress": job.progress.model_copy(update={"num_steps": num_steps})})

    pace = watching._Pace()
    assert [pace.add(second, at(steps)) for second, steps in [(0, 0), (10, 0), (20, 100)]] == [None, None, 5.0]
    assert pace.add(40, at(500)) == pytest.approx(500 / 30)  # since second 10
    assert "500/3,150 steps (16.7 a second)" in progress_line(at(500), steps_per_second=500 / 30)
    assert pace.add(41, at(500).model_copy(update={"state": JobState.PAUSED})) is None


@pytest.mark.usefixtures("url")
def test_watch_fails_with_the_job(sqlite_database: Database) -> None:
    job_id = submit(sqlite_database)
    assert run("cancel", job_id).exit_code == 0
    result = run("watch", job_id)
    assert result.exit_code == 1
    assert f"job {job_id} cancelled" in result.stderr
    again = run("cancel", job_id)
    assert again.exit_code == 1
    assert "already finished" in again.stderr


@pytest.mark.usefixtures("url")
def test_a_queued_job_that_is_watched_says_what_it_waits_for(
    sqlite_database: Database, meanwhile: Callable[..., None]
) -> None:
    job_id = submit(sqlite_database)
    meanwhile(lambda: run("cancel", job_id))
    lines = run("watch", job_id).stdout.splitlines()
    assert lines[0] == (
        "queued · 0/4 trials (none started) · no worker has been started; `shampoo-tuner worker` starts one "
        "(waiting since 2026-03-01 12:00:00 UTC)"
    )


@pytest.mark.processes
def test_ctrl_c_leaves_a_watched_job_running(url: str, sqlite_database: Database) -> None:
    job_id = claimed_job(sqlite_database).job_id
    command = [sys.executable, "-m", "service", "watch", job_id]
    environment = {**os.environ, "SHAMPOO_TUNER_URL": url}
    with started(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("running")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130
    assert f"job {job_id} goes on" in errors
    assert "Traceback" not in errors
    with sqlite_database.reading() as session:
        assert JobRepository(session).get(job_id).state is JobState.RUNNING


@pytest.mark.usefixtures("url")
def test_watch_ends_with_the_evidence_and_the_way_to_the_config(sqlite_database: Database) -> None:
    job_id = finished_job(sqlite_database)
    result = run("watch", job_id)
    assert result.exit_code == 0, result.output
    assert "\nUndecided: too few trials to tell Shampoo from AdamW. " in result.stdout
    assert result.stdout.splitlines()[-1] == f"`shampoo-tuner recommend --job {job_id}` prints the config."
