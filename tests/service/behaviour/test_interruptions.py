"""A job survives whatever ends the processes that run it: it goes on from SQL, and nothing is left behind.

Each test takes the worker that the one before it has left, if one lives.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import psutil
import pytest
from sqlalchemy import make_url, select

from service.domain import JobState, TrialState
from service.store.models import Trial, Worker
from service.store.repositories import EventRepository, JobRepository
from service.store.session import Database
from service.use_cases.steer import change_budget
from tests.service.scheduler.test_job_run import paced, specification
from tests.support.service.service_process import PLUGIN, ServiceProcesses, for_one_test, lasting
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.services

NUM_TRIALS = 6
STEPS = [10, 20, 30, 40]
PASSWORD = "tell-nobody"
"""Of the database, whose server asks for none."""


@pytest.fixture(scope="module")
def _interrupted(migrated_sqlite_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcesses]:
    with lasting(migrated_sqlite_file, tmp_path_factory.mktemp("interrupted"), num_workers=0) as service:
        yield service


@pytest.fixture
def service(_interrupted: ServiceProcesses, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServiceProcesses]:
    """A service that all of these share."""
    yield from for_one_test(_interrupted, monkeypatch)


@pytest.fixture(scope="module")
def code_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the worker that may run code, from which it imports."""
    return tmp_path_factory.mktemp("code")


def have_worker(service: ServiceProcesses) -> None:
    """Starts a worker if none lives."""
    if all(worker.poll() is not None for worker in service.workers):
        service.start_worker()


def kill_the_run(service: ServiceProcesses) -> None:
    service.run_process().kill()


def kill_the_worker(service: ServiceProcesses) -> None:
    worker = service.workers[-1]
    worker.kill()
    worker.wait()
    service.wait_for("the end of all the worker had started", lambda: not service.processes())
    assert service.directories() == []
    service.start_worker()


def kill_both(service: ServiceProcesses) -> None:
    run, worker = service.run_process(), service.workers[-1]
    os.kill(worker.pid, signal.SIGSTOP)  # so that neither can react to the other's end
    # Before they die: from then on any worker that starts on this machine may end what they leave.
    left = [process for process in service.processes() if process.pid not in (run.pid, worker.pid)]
    directories = service.directories()
    assert left
    run.kill()
    worker.kill()
    worker.wait()
    service.start_worker()  # which ends what they have left before it runs anything
    service.wait_for("their end", lambda: not any(process.is_running() for process in left))
    service.wait_for("the removal of their files", lambda: not any(map(Path.exists, directories)))


def kill_the_raylet(service: ServiceProcesses) -> None:
    run = service.run_process()
    [raylet] = [process for process in service.processes() if process.name() == "raylet"]
    raylet.kill()
    service.wait_for("the end of the run", lambda: not run.is_running())


def terminate_the_worker(service: ServiceProcesses) -> None:
    stop_the_worker(service, signal.SIGTERM)
    service.start_worker()


def stop_the_worker(service: ServiceProcesses, number: signal.Signals) -> None:
    worker = service.workers[-1]
    worker.send_signal(number)
    assert worker.wait(PATIENCE_SECONDS) == 0
    assert service.processes() == []
    assert service.directories() == []
    with service.database.reading() as session:
        [job] = [job for job in JobRepository(session).page(project=None, limit=100) if not job.state.is_final]
        [row] = session.scalars(select(Worker).where(Worker.pid == worker.pid))
    assert row.ended_at is not None
    assert job.state is JobState.QUEUED
    assert job.crashes == 0


INTERRUPTIONS = [terminate_the_worker, kill_the_run, kill_the_worker, kill_both, kill_the_raylet]


DESCRIBED = """
import os, signal, sys
from pathlib import Path
from trainers.workloads.digits.digits import DigitsMLP

class Described(DigitsMLP):
    title, metrics = "Digits", {{"validation_loss": "minimize"}}
    default_objective, default_batch_size = "validation_loss", 32
    default_num_steps, default_evaluate_every = 20, 10

    def __init__(self):
        super().__init__(hidden_sizes=[16], dropout=0.0, label_smoothing=0.0)

if "trainers.workloads.describe" in sys.orig_argv:
    with Path({asked!r}).open("a") as file:
        file.write(".")
    if Path({asked!r}).stat().st_size == 2:  # 1: the job is submitted; 2: its first run asks
        os.kill(os.getpid(), signal.SIGKILL)
"""
"""A workload whose description fails once, as on a machine that is short of memory."""


def test_a_job_that_names_code_waits_for_a_worker_that_may_run_it(
    service: ServiceProcesses, code_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of these tests, as all others can take the worker that it leaves."""
    service.start_worker()
    refusing = service.workers[-1]
    own = {"workload": {"name": "tests.support.trainers.broken_workloads:Sound"}, "confirmation": None}
    named = service.submit({**specification(num_trials=1), **own}, priority=1)
    ordinary, _ = service.finish(service.submit(specification(num_trials=1)))
    assert ordinary.state is JobState.SUCCEEDED, ordinary.failure
    assert (service.job(named).state, service.job(named).attempt) == (JobState.QUEUED, 0)
    monkeypatch.setenv("SHAMPOO_TUNER_ALLOW_CODE", "true")
    monkeypatch.chdir(code_directory)
    service.start_worker()
    job, [trial] = service.finish(named)
    refusing.terminate()  # the tests below are about one worker
    refusing.wait(PATIENCE_SECONDS)
    assert (job.state, job.attempt, trial.state) == (JobState.SUCCEEDED, 1, TrialState.COMPLETED), job.failure


def test_a_run_for_which_the_workload_could_not_be_described_is_begun_again(
    service: ServiceProcesses, code_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (code_directory / "described.py").write_text(DESCRIBED.format(asked=str(tmp_path / "asked")))
    monkeypatch.chdir(code_directory)
    monkeypatch.setenv("SHAMPOO_TUNER_ALLOW_CODE", "true")
    have_worker(service)
    job_id = service.submit({**specification(num_trials=1), "workload": {"name": "described:Described"}})
    job, [trial] = service.finish(job_id)
    assert (job.state, job.attempt) == (JobState.SUCCEEDED, 2), job.failure
    assert (trial.state, trial.runs) == (TrialState.COMPLETED, 1)
    log = (service.data_dir / "logs" / f"{job_id}.log").read_text()
    assert "killed" in log or "SIGKILL" in log, service.logs()


def test_a_job_goes_on_where_it_was_whatever_interrupts_it(service: ServiceProcesses) -> None:
    have_worker(service)
    job_id = service.submit(
        specification(
            num_trials=NUM_TRIALS,
            options=service.until_hurry(),
            resources={"workers_per_trial": 2, "parallel_trials": 1},
            **paced(0.0, *[0.3] * (NUM_TRIALS - 2)),
        )
    )
    snapshots: list[list[Trial]] = [[]]

    def a_later_trial_is_half_done() -> bool:
        """Further, too, than at the interruption before."""
        trials = service.trials(job_id)
        is_further = sum(trial.step for trial in trials) > sum(trial.step for trial in snapshots[-1])
        return is_further and len(trials) >= 3 and 10 <= trials[-1].step < 40

    for interrupt in INTERRUPTIONS:
        service.wait_for(f"a trial to be half done: {interrupt.__name__}", a_later_trial_is_half_done)
        interrupt(service)
        snapshots.append(service.trials(job_id))
    service.hurry()
    job, after = service.finish(job_id)

    assert job.state is JobState.SUCCEEDED, job.failure
    assert job.attempt == 1 + len(INTERRUPTIONS)
    assert [trial.number for trial in after] == list(range(NUM_TRIALS))
    assert {trial.state for trial in after} == {TrialState.COMPLETED}
    assert all([measurement.step for measurement in trial.measurements] == STEPS for trial in after)
    for before, later in pairwise([*snapshots, after]):
        for trial, earlier in zip(later, before, strict=False):
            if earlier.state.is_final:
                was = earlier.runs, earlier.finished_at, recorded(earlier)
                assert (trial.runs, trial.finished_at, recorded(trial)) == was
            elif earlier.measurements:
                # Of what it had measured, a resumed trial gives the newest checkpoint's measurement again. That of the
                # last measurement may have been in writing.
                assert trial.runs == earlier.runs + 1
                num_kept = max(len(earlier.measurements) - 2, 0)
                assert recorded(trial)[:num_kept] == recorded(earlier)[:num_kept]
        assert [trial.runs for trial in later[len(before) :]] == [1] * (len(later) - len(before))

    service.wait_for("the end of the run", lambda: not service.processes_of_runs())
    assert not (service.data_dir / "checkpoints" / job_id).exists()


@pytest.fixture
def database_with_password(migrated_database_url: str) -> Iterator[Database]:
    """A database whose URL has a password."""
    database = Database(make_url(migrated_database_url).set(password=PASSWORD).render_as_string(hide_password=False))
    yield database
    database.close()


@pytest.mark.parametrize("database_kind", ["postgresql"])
def test_the_end_of_a_job_is_written_once_whatever_becomes_of_its_ray_and_no_log_shows_the_password(
    database_with_password: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = database_with_password
    monkeypatch.syspath_prepend(PLUGIN)
    # Without its head, Ray ends a process after so long; a minute by default.
    headless_seconds = 5.0
    monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", f"{headless_seconds:g}")
    service = ServiceProcesses(database, tmp_path)
    try:
        service.start_worker()
        job_id = service.submit(specification(num_trials=1))
        with service.end_held_up():
            run = service.run_process()
            assert service.rank_processes() == []
            until = time.monotonic() + 2 * headless_seconds
            service.wait_for("more time than Ray would leave", lambda: time.monotonic() > until or not run.is_running())
            assert run.is_running(), service.logs()
            for head in heads(service):
                head.kill()
        job, trials = service.finish(job_id)
        service.wait_for("the end of the run", lambda: not service.processes_of_runs())
    finally:
        service.close()
    assert (job.state, job.attempt, job.crashes) == (JobState.SUCCEEDED, 1, 0), job.failure
    assert [(trial.state, trial.runs) for trial in trials] == [(TrialState.COMPLETED, 1)]
    with database.reading() as session:
        told = [event.kind for event in EventRepository(session).after(0, project=None, job_id=job_id, limit=1000)]
    assert told.count("job.recommendation") == 1
    assert "crashed" not in service.logs()
    logs = [path.read_text() for path in tmp_path.rglob("*.log")]
    assert any("runs jobs of postgresql" in log for log in logs)
    assert not any(PASSWORD in log for log in logs)


def heads(service: ServiceProcesses) -> list[psutil.Process]:
    """The heads of the Ray clusters of runs."""
    return [process for process in service.processes() if process.name() == "gcs_server"]


def test_a_run_that_is_told_to_end_while_ray_starts_ends_at_once_and_leaves_nothing_behind(
    service: ServiceProcesses,
) -> None:
    have_worker(service)
    job_id = service.submit(specification(num_trials=1))
    service.wait_for("Ray to start", lambda: heads(service) != [])
    heads(service)[0].suspend()  # now it starts for ever
    with service.database.writing() as session:
        change_budget(session, job_id, {"num_trials": 2}, now=datetime.now(UTC))
    service.wait_for("the next run", lambda: service.job(job_id).attempt == 2)
    assert service.job(job_id).crashes == 0
    assert f"the run of job {job_id} crashed" not in service.logs()
    service.wait_for("Ray to start again", lambda: heads(service) != [])
    stop_the_worker(service, signal.SIGINT)


def recorded(trial: Trial) -> list[tuple[int, datetime]]:
    return [(measurement.step, measurement.recorded_at) for measurement in trial.measurements]
